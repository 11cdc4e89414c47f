#include "actors/router/session_book.hpp"

#include <functional>

namespace troupe::router {

session_book::key session_book::key_of(const std::string& model, std::string_view session) {
  const auto a = std::hash<std::string_view>{}(model), b = std::hash<std::string_view>{}(session);
  return a * 0x9e3779b97f4a7c15ULL + b;
}

const session_book::pair* session_book::find(const std::string& model,
                                             std::string_view session) const {
  const auto i = by_key_.find(key_of(model, session));
  return i == by_key_.end() ? nullptr : &i->second->second;
}

void session_book::note(const std::string& model, std::string_view session, pair used) {
  if (sessions_max_ == 0) return;
  const auto k = key_of(model, session);
  if (const auto i = by_key_.find(k); i != by_key_.end()) {
    auto& known = i->second->second;
    if (used.prefill.empty()) used.prefill = std::move(known.prefill);
    known = std::move(used);
    recent_.splice(recent_.begin(), recent_, i->second);
    return;
  }
  if (recent_.size() >= sessions_max_) {
    by_key_.erase(recent_.back().first);
    recent_.pop_back();
  }
  recent_.emplace_front(k, std::move(used));
  by_key_[k] = recent_.begin();
}

}  // namespace troupe::router
