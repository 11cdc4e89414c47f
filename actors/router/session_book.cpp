#include "actors/router/session_book.hpp"

#include <functional>
#include <iterator>

namespace troupe::router {

session_book::key session_book::key_of(const std::string& model, std::string_view session) {
  const auto a = std::hash<std::string_view>{}(model), b = std::hash<std::string_view>{}(session);
  return a * 0x9e3779b97f4a7c15ULL + b;
}

const session_book::pair* session_book::find(const std::string& model,
                                             std::string_view session) const {
  const auto i = by_key_.find(key_of(model, session));
  return i == by_key_.end() ? nullptr : &i->second->used;
}

void session_book::note(const std::string& model, std::string_view session, pair used,
                        std::uint64_t shard_key) {
  if (sessions_max_ == 0) return;
  const auto k = key_of(model, session);
  if (const auto i = by_key_.find(k); i != by_key_.end()) {
    auto& known = *i->second;
    if (used.prefill.empty()) used.prefill = std::move(known.used.prefill);
    known.used = std::move(used);
    known.shard_key = shard_key;
    recent_.splice(recent_.begin(), recent_, i->second);
    return;
  }
  if (recent_.size() >= sessions_max_) {
    by_key_.erase(recent_.back().session);
    recent_.pop_back();
  }
  recent_.push_front({k, shard_key, std::move(used)});
  by_key_[k] = recent_.begin();
}

void session_book::add(moving m) {
  if (recent_.size() >= sessions_max_ || by_key_.contains(m.session)) return;
  recent_.push_back(std::move(m));
  by_key_[recent_.back().session] = std::prev(recent_.end());
}

}  // namespace troupe::router
