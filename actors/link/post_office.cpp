#include "actors/link/post_office.hpp"

#include <caf/send.hpp>

namespace troupe::link {

namespace {

using deliver_fn = void (*)(const caf::actor& target, origin from, msg::frozen_message body);

template <class Schema>
void deliver_as(const caf::actor& target, origin from, msg::frozen_message body) {
  caf::anon_send(target, std::move(from), msg::envelope<Schema>{std::move(body)});
}

/// Schema id → how to hand the body to a local actor under its type.
const std::unordered_map<std::uint64_t, deliver_fn>& deliveries() {
  static const std::unordered_map<std::uint64_t, deliver_fn> table = {
#define TROUPE_DELIVERY(Schema) {msg::schema_id<msg::Schema>(), &deliver_as<msg::Schema>},
      TROUPE_ENVELOPE_SCHEMAS(TROUPE_DELIVERY)
#undef TROUPE_DELIVERY
  };
  return table;
}

}  // namespace

void post_office::bind(const std::string& name, std::uint64_t generation, caf::actor target) {
  std::unique_lock lock{mutex_};
  bindings_[name] = binding{generation, std::move(target)};
}

void post_office::unbind(const std::string& name, std::uint64_t generation) {
  std::unique_lock lock{mutex_};
  auto i = bindings_.find(name);
  // A late unbind of an older incarnation must not take the newer one away.
  if (i != bindings_.end() && !i->second.is_link && i->second.generation == generation)
    bindings_.erase(i);
}

void post_office::set_route(const std::string& name, std::uint64_t generation, caf::actor link,
                            far_end leads_to) {
  std::unique_lock lock{mutex_};
  auto& b = bindings_[name];
  if (b.target && !b.is_link) return;  // a name of this process is never routed away
  b = binding{generation, std::move(link), true, leads_to};
}

void post_office::drop_route(const std::string& name) {
  std::unique_lock lock{mutex_};
  auto i = bindings_.find(name);
  if (i != bindings_.end() && i->second.is_link) bindings_.erase(i);
}

void post_office::drop_link(const caf::actor& link) {
  std::unique_lock lock{mutex_};
  std::erase_if(bindings_, [&](const auto& entry) {
    return entry.second.is_link && entry.second.target == link;
  });
  if (default_route_ == link) default_route_ = nullptr;
}

void post_office::set_default_route(caf::actor link) {
  std::unique_lock lock{mutex_};
  default_route_ = std::move(link);
}

void post_office::deliver(msg::parcel p, const caf::actor& from, far_end comes_from) {
  caf::actor target;
  bool is_link = false;
  auto leads_to = far_end::node;
  {
    std::shared_lock lock{mutex_};
    if (auto i = bindings_.find(p.to.name); i != bindings_.end()) {
      const auto& b = i->second;
      if (p.to.generation != 0 && b.generation != 0 && p.to.generation != b.generation) {
        ++counters_.stale_generation;
        return;
      }
      target = b.target;
      is_link = b.is_link;
      leads_to = b.leads_to;
    } else if (default_route_) {
      target = default_route_;
      is_link = true;
    }
  }
  if (!target) {
    ++counters_.unknown_name;
    return;
  }
  if (is_link) {
    if (target == from || (comes_from == far_end::node && leads_to == far_end::node)) {
      ++counters_.no_route;
      return;
    }
    ++counters_.forwarded;
    caf::anon_send(target, std::move(p));
    return;
  }
  auto i = deliveries().find(p.schema);
  if (i == deliveries().end() || p.body.empty()) {
    ++counters_.unknown_schema;
    return;
  }
  ++counters_.delivered;
  i->second(target, origin{std::move(p.from), std::move(p.to)}, std::move(p.body));
}

bool post_office::knows(const std::string& name) const {
  std::shared_lock lock{mutex_};
  return bindings_.contains(name);
}

post_counters post_office::counters() const {
  return {counters_.delivered,        counters_.forwarded,      counters_.unknown_name,
          counters_.stale_generation, counters_.unknown_schema, counters_.no_route};
}

}  // namespace troupe::link
