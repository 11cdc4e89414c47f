#include "actors/health/probe.hpp"

#include "messages/completion.capnp.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <array>
#include <limits>

namespace troupe::health {

namespace {

constexpr const char* probe_text = ".";
/// A job needs one, though a probe hands nothing over.
constexpr std::array<std::uint8_t, 16> no_transfer{};

}  // namespace

msg::envelope<msg::DecodeJob> make_probe(const msg::job_key& key, const std::string& reply_to,
                                         std::chrono::milliseconds within) {
  capnp::MallocMessageBuilder builder;
  auto wanted = builder.initRoot<msg::Completion>();
  wanted.getPrompt().setText(probe_text);
  wanted.setMaxTokens(1);
  wanted.initSampling().setTemperature(0);
  wanted.setIgnoreEos(true);
  const auto words = capnp::messageToFlatArray(builder);
  msg::draft<msg::DecodeJob> d;
  auto job = d->initJob();
  msg::write(job.initKey(), key);
  job.setReplyTo(reply_to);
  auto content = job.initContent();
  content.setBytes(static_cast<std::uint32_t>(words.asBytes().size()));
  content.setInline(words.asBytes());
  const auto ms = static_cast<std::uint32_t>(within.count());
  job.setDeadlineMs(ms);
  job.setLeaseMs(ms);
  job.setTransferToken(kj::arrayPtr(no_transfer.data(), no_transfer.size()));
  job.setPriority(std::numeric_limits<std::uint8_t>::max());
  job.setIsProbe(true);
  d->getSource().setSelf();
  return std::move(d).freeze().value();
}

}  // namespace troupe::health
