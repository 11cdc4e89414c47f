#include "actors/directory/readiness.hpp"

#include "messages/entry_state.hpp"

#include <fmt/format.h>

namespace troupe::directory {

void readiness::add(const entry& engine) {
  if (engine.state == msg::EntryState::READY) {
    both_ = both_ || engine.role == msg::Role::BOTH;
    prefill_ = prefill_ || engine.role == msg::Role::PREFILL;
    decode_ = decode_ || engine.role == msg::Role::DECODE;
  }
  const bool given_up = engine.state == msg::EntryState::FAILED;
  if (engine.role != msg::Role::DECODE) prefills_.add(given_up);
  if (engine.role != msg::Role::PREFILL) decodes_.add(given_up);
  states_ += fmt::format("{}{} is {}{}{}", states_.empty() ? "" : "; ", engine.name,
                         msg::state_name(engine.state),
                         engine.detail.empty() ? "" : " (" + engine.detail + ")",
                         engine.slow.empty() ? "" : ", but slow (" + engine.slow + ")");
  if (engine.state == msg::EntryState::READY && !engine.slow.empty())
    slow_ += fmt::format("{}{} is slow: {}", slow_.empty() ? "" : "; ", engine.name, engine.slow);
}

bool readiness::failed() const { return prefills_.lost() || decodes_.lost(); }

std::string readiness::reasons() const {
  if (states_.empty()) return "none of its engines has reported yet";
  if (prefill_ == decode_) return states_;
  return states_ + (prefill_ ? "; a decode engine is missing" : "; a prefill engine is missing");
}

readiness readiness_of(const std::string& model, const snapshot& all) {
  readiness r;
  for (const auto& [name, e] : all)
    if (e.model == model) r.add(e);
  return r;
}

}  // namespace troupe::directory
