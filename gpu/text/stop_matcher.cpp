#include "gpu/text/stop_matcher.hpp"

#include <algorithm>
#include <utility>

namespace troupe::text {

std::vector<std::string> joined(std::span<const std::string> a, std::span<const std::string> b) {
  std::vector<std::string> out(a.begin(), a.end());
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

stop_matcher::stop_matcher(std::vector<std::string> stops) {
  for (auto& stop : stops) {
    if (stop.empty()) continue;
    automaton a{std::move(stop), {}, 0};
    a.fallback.assign(a.stop.size() + 1, 0);
    for (std::size_t i = 1; i < a.stop.size(); ++i) {
      auto border = a.fallback[i];
      while (border > 0 && a.stop[border] != a.stop[i]) border = a.fallback[border];
      a.fallback[i + 1] = a.stop[border] == a.stop[i] ? border + 1 : 0;
    }
    automata_.push_back(std::move(a));
  }
}

void stop_matcher::advance(automaton& a, char byte) {
  // A complete match ends the whole text, so `matched` never stands at the end here.
  while (a.matched > 0 && a.stop[a.matched] != byte) a.matched = a.fallback[a.matched];
  if (a.stop[a.matched] == byte) ++a.matched;
}

stop_matcher::result stop_matcher::push(std::string_view text) {
  result out;
  if (stopped_) return out;
  if (automata_.empty()) {
    out.text = text;
    return out;
  }
  for (const char byte : text) {
    held_.push_back(byte);
    const automaton* complete = nullptr;
    for (auto& a : automata_) {
      advance(a, byte);
      if (a.matched == a.stop.size() &&
          (complete == nullptr || a.stop.size() > complete->stop.size()))
        complete = &a;
    }
    if (complete != nullptr) {
      stopped_ = true;
      out.stopped = true;
      out.stop_text = complete->stop;
      out.text = held_.substr(0, held_.size() - complete->stop.size());
      held_.clear();
      return out;
    }
  }
  std::size_t keep = 0;
  for (const auto& a : automata_) keep = std::max(keep, a.matched);
  out.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string stop_matcher::finish() {
  for (auto& a : automata_) a.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace troupe::text
