#include "gpu/transfer/hand_over_wire.hpp"

#include "gpu/text/output_plan.hpp"
#include "messages/transfer.capnp.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <kj/exception.h>

#include <cstring>
#include <string>

namespace troupe::transfer {

namespace {

template <class... Ts>
struct overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
overloaded(Ts...) -> overloaded<Ts...>;

/// A long prompt's tokens are read once; reading far more than was sent is an amplification attack.
constexpr std::uint64_t traversal_words_max = 4U << 20U;
constexpr int nesting_max = 16;

std::string to_string(capnp::Text::Reader in) { return {in.begin(), in.size()}; }

void write(msg::Failure::Builder out, const error& why) {
  out.setCode(why.code);
  out.setMessage(why.message);
  out.setParameter(why.parameter);
}

error read(msg::Failure::Reader in) {
  return {to_string(in.getCode()), to_string(in.getMessage()), to_string(in.getParameter())};
}

template <class List, class Values>
void write_list(List out, const Values& values) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, values[i]);
}

void write(msg::Open::Builder out, const offer_of_kv& offer) {
  write_list(out.initTokens(static_cast<unsigned>(offer.tokens.size())), offer.tokens);
  out.setAnswerTokens(offer.answer);
  out.setKvUntil(offer.kv_until);
  out.setBytesPerToken(offer.bytes_per_token);
  out.setLayout(offer.layout);
  text::write(out.initOutputPlan(), offer.plan);
}

offer_of_kv read(msg::Open::Reader in) {
  offer_of_kv offer;
  auto tokens = in.getTokens();  // its size was checked against the message's
  offer.tokens.reserve(tokens.size());
  for (auto id : tokens) offer.tokens.push_back(id);
  offer.answer = in.getAnswerTokens();
  offer.kv_until = in.getKvUntil();
  offer.bytes_per_token = in.getBytesPerToken();
  offer.layout = in.getLayout();
  offer.plan = text::read(in.getOutputPlan());
  return offer;
}

hand_over_message::body_type read_body(msg::HandOver::Reader in) {
  switch (in.which()) {
  case msg::HandOver::OPEN:
    return read(in.getOpen());
  case msg::HandOver::GRANT: {
    auto grant = in.getGrant();
    return hand_over_message::grant{grant.getKeep(), grant.getKeepDigest(), grant.getCreditBytes()};
  }
  case msg::HandOver::REFUSE:
    return hand_over_message::refuse{read(in.getRefuse())};
  case msg::HandOver::CREDIT:
    return hand_over_message::credit{in.getCredit()};
  case msg::HandOver::END:
    return hand_over_message::end{in.getEnd().getPieces(), in.getEnd().getBytes()};
  case msg::HandOver::ADOPTED:
    return hand_over_message::adopted{};
  case msg::HandOver::QUEUED:
    return hand_over_message::queued{};
  case msg::HandOver::ABORT:
    return hand_over_message::abort{read(in.getAbort())};
  }
  return hand_over_message::abort{
      {"unknown_message", "the peer said something that this version doesn't know"}};
}

}  // namespace

std::vector<std::byte> encode(const hand_over_message& message) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<msg::HandOver>();
  write(root.initKey(), message.key);
  root.setToken(
      kj::arrayPtr(reinterpret_cast<const kj::byte*>(message.token.data()), message.token.size()));
  std::visit(
      overloaded{
          [&](const offer_of_kv& open) { write(root.initOpen(), open); },
          [&](const hand_over_message::grant& grant) {
            auto out = root.initGrant();
            out.setKeep(grant.keep);
            out.setKeepDigest(grant.keep_digest);
            out.setCreditBytes(grant.credit_bytes);
          },
          [&](const hand_over_message::refuse& refuse) { write(root.initRefuse(), refuse.why); },
          [&](const hand_over_message::credit& credit) { root.setCredit(credit.bytes); },
          [&](const hand_over_message::end& end) {
            auto out = root.initEnd();
            out.setPieces(end.pieces);
            out.setBytes(end.bytes);
          },
          [&](const hand_over_message::adopted&) { root.setAdopted(); },
          [&](const hand_over_message::queued&) { root.setQueued(); },
          [&](const hand_over_message::abort& abort) { write(root.initAbort(), abort.why); },
      },
      message.body);
  auto words = capnp::messageToFlatArray(builder);
  auto bytes = words.asBytes();
  auto first = reinterpret_cast<const std::byte*>(bytes.begin());
  return {first, first + bytes.size()};
}

expected<hand_over_message> decode_hand_over(std::span<const std::byte> bytes) {
  const error malformed{"message_malformed", "a hand-over message from a peer can't be read"};
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0) return malformed;
  auto words = kj::heapArray<capnp::word>(bytes.size() / sizeof(capnp::word));
  std::memcpy(words.begin(), bytes.data(), bytes.size());
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = traversal_words_max;
    options.nestingLimit = nesting_max;
    capnp::FlatArrayMessageReader reader(words, options);
    auto root = reader.getRoot<msg::HandOver>();
    hand_over_message message;
    message.key = msg::read(root.getKey());
    auto token = root.getToken();
    auto first = reinterpret_cast<const std::byte*>(token.begin());
    message.token.assign(first, first + token.size());
    message.body = read_body(root);
    return message;
  } catch (const kj::Exception&) {
    return malformed;  // Cap'n Proto's way of saying so
  }
}

}  // namespace troupe::transfer
