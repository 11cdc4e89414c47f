#include "actors/workers/token_batch.hpp"

#include "gpu/engine/job_cost_wire.hpp"
#include "messages/text.hpp"

#include <spdlog/spdlog.h>

#include <cstddef>
#include <iterator>
#include <map>

namespace troupe::workers {

namespace {

msg::FinishReason wire_reason(engine::finish why) {
  switch (why) {
  case engine::finish::none:
    return msg::FinishReason::NONE;
  case engine::finish::stop:
    return msg::FinishReason::STOP;
  case engine::finish::length:
    return msg::FinishReason::LENGTH;
  case engine::finish::tool_calls:
    break;
  }
  return msg::FinishReason::TOOL_CALLS;
}

kj::ArrayPtr<const kj::byte> bytes_of(const std::string& s) {
  return kj::arrayPtr(reinterpret_cast<const kj::byte*>(s.data()), s.size());
}

void write_logprobs(msg::StreamDelta::Builder out,
                    const std::vector<engine::token_logprob>& logprobs) {
  auto list = out.initLogprobs(static_cast<unsigned>(logprobs.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto& from = logprobs[i];
    list[i].setId(from.chosen.id);
    list[i].setBytes(bytes_of(from.chosen.bytes));
    list[i].setLogprob(from.chosen.logprob);
    auto top = list[i].initTop(static_cast<unsigned>(from.top.size()));
    for (unsigned k = 0; k < top.size(); ++k) {
      top[k].setId(from.top[k].id);
      top[k].setBytes(bytes_of(from.top[k].bytes));
      top[k].setLogprob(from.top[k].logprob);
    }
  }
}

void write_delta(msg::StreamDelta::Builder out, const job_route& route,
                 const engine::choice_delta& d) {
  write(out.initKey(), route.key);
  out.setChoice(d.choice);
  out.setFirstIndex(d.first_index);
  auto ids = out.initIds(static_cast<unsigned>(d.ids.size()));
  for (unsigned i = 0; i < ids.size(); ++i) ids.set(i, d.ids[i]);
  if (!d.text.empty()) out.setText(msg::whole(d.text));
  out.setEmittedBytes(d.emitted_bytes);
  if (!d.reasoning.empty()) out.setReasoning(msg::whole(d.reasoning));
  if (!d.tool_calls.empty()) {
    auto calls = out.initToolCalls(static_cast<unsigned>(d.tool_calls.size()));
    for (unsigned i = 0; i < calls.size(); ++i) {
      calls[i].setIndex(static_cast<std::uint16_t>(d.tool_calls[i].index));
      calls[i].setId(d.tool_calls[i].id);
      calls[i].setName(msg::whole(d.tool_calls[i].name));
      calls[i].setArguments(msg::whole(d.tool_calls[i].arguments));
    }
  }
  if (!d.logprobs.empty()) write_logprobs(out, d.logprobs);
  out.setFinish(wire_reason(d.why));
  if (d.cost) engine::write(out.initCost(), *d.cost);
}

bool may_follow(const engine::choice_delta& first, const engine::choice_delta& next) {
  return first.first_index + first.ids.size() == next.first_index && first.tool_calls.empty() &&
         next.tool_calls.empty() && (next.reasoning.empty() || first.text.empty());
}

void append(engine::choice_delta& to, engine::choice_delta next) {
  const auto move_to_end = [](auto& all, auto& more) {
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  };
  move_to_end(to.ids, next.ids);
  move_to_end(to.logprobs, next.logprobs);
  to.text += next.text;
  to.reasoning += next.reasoning;
  to.emitted_bytes = next.emitted_bytes;
  to.why = next.why;
  to.stop_text = std::move(next.stop_text);
  to.cost = std::move(next.cost);
}

}  // namespace

std::vector<routed_delta> joined(std::vector<routed_delta> deltas) {
  std::map<std::pair<engine::job_id, std::uint16_t>, std::size_t> last;  // of each choice
  std::vector<routed_delta> out;
  out.reserve(deltas.size());
  for (auto& [where, d] : deltas) {
    const auto [at, first] = last.try_emplace({d.job, d.choice}, out.size());
    if (!first && may_follow(out[at->second].second, d)) {
      append(out[at->second].second, std::move(d));
      continue;
    }
    at->second = out.size();
    out.emplace_back(std::move(where), std::move(d));
  }
  return out;
}

void write_failure(msg::Failure::Builder out, const error& why, int http_status, bool retryable) {
  out.setCode(why.code);
  out.setMessage(why.message);
  out.setParameter(why.parameter);
  out.setHttpStatus(static_cast<std::uint16_t>(http_status));
  out.setRetryable(retryable);
}

std::vector<msg::envelope<msg::TokenBatch>> make_token_batches(
    const std::string& worker, std::uint64_t generation,
    std::span<const routed_delta* const> deltas, std::vector<engine::job_id>& left_out) {
  msg::draft<msg::TokenBatch> d{128 + deltas.size() * 256};
  d->setWorker(worker);
  d->setGeneration(generation);
  auto streams = d->initStreams(static_cast<unsigned>(deltas.size()));
  for (unsigned i = 0; i < streams.size(); ++i)
    write_delta(streams[i], deltas[i]->first, deltas[i]->second);
  auto frozen = std::move(d).freeze();
  if (frozen) return {*std::move(frozen)};
  if (deltas.size() <= 1) {
    spdlog::error("event=delta_too_large worker={} reason=\"{}\"", worker, frozen.error().message);
    for (const auto* d : deltas) left_out.push_back(d->second.job);
    return {};
  }
  auto first = make_token_batches(worker, generation, deltas.first(deltas.size() / 2), left_out);
  for (auto& e :
       make_token_batches(worker, generation, deltas.subspan(deltas.size() / 2), left_out))
    first.push_back(std::move(e));
  return first;
}

}  // namespace troupe::workers
