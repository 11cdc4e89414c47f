#include "actors/request/stream_ledger.hpp"

#include <algorithm>

namespace troupe::request {

stream_ledger::verdict stream_ledger::take(msg::StreamDelta::Reader delta) {
  if (delta.getChoice() >= choices_.size()) return verdict::gap;
  auto& c = choices_[delta.getChoice()];
  if (c.why != msg::FinishReason::NONE) return verdict::duplicate;
  const auto ids = delta.getIds();
  const auto have = c.ids.size();
  if (delta.getFirstIndex() > have) return verdict::gap;
  if (delta.getFirstIndex() < have) {
    // A worker that repeats must repeat whole deltas: half of one would mean that its text cannot
    // be cut. An end that is not known yet is no repetition.
    return delta.getFirstIndex() + ids.size() <= have &&
                   delta.getFinish() == msg::FinishReason::NONE
               ? verdict::duplicate
               : verdict::gap;
  }
  for (auto id : ids) c.ids.push_back(id);
  c.emitted_bytes = delta.getEmittedBytes();
  c.why = delta.getFinish();
  return verdict::fresh;
}

bool stream_ledger::all_done() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const auto& c) { return c.why != msg::FinishReason::NONE; });
}

bool stream_ledger::anything() const {
  return std::any_of(choices_.begin(), choices_.end(), [](const auto& c) {
    return !c.ids.empty() || c.why != msg::FinishReason::NONE;
  });
}

std::uint32_t stream_ledger::sampled() const {
  std::size_t sum = 0;
  for (const auto& c : choices_) sum += c.ids.size();
  return static_cast<std::uint32_t>(sum);
}

std::vector<stream_ledger::length> stream_ledger::lengths() const {
  std::vector<length> all;
  for (const auto& c : choices_) all.push_back({static_cast<std::uint32_t>(c.ids.size()), c.why});
  return all;
}

void stream_ledger::write(msg::Resume::Builder out) const {
  auto list = out.initChoices(static_cast<unsigned>(choices_.size()));
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    auto to = list[static_cast<unsigned>(i)];
    to.setChoice(static_cast<std::uint16_t>(i));
    to.setEmittedBytes(choices_[i].emitted_bytes);
    to.setDone(choices_[i].why != msg::FinishReason::NONE);
    auto ids = to.initIds(static_cast<unsigned>(choices_[i].ids.size()));
    for (std::size_t k = 0; k < choices_[i].ids.size(); ++k)
      ids.set(static_cast<unsigned>(k), choices_[i].ids[k]);
  }
}

}  // namespace troupe::request
