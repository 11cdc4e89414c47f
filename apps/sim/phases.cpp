#include "apps/sim/phases.hpp"

#include "actors/link/post_office.hpp"
#include "gpu/transfer/hand_over_wire.hpp"
#include "messages/wire.hpp"

#include <span>

namespace troupe::sim {

std::string_view to_string(phase p) {
  static constexpr std::array<std::string_view, phases> names = {
      "routing", "queued", "prefilling", "transferring", "adopting", "decoding", "finishing"};
  return names[static_cast<std::size_t>(p)];
}

void phase_watch::sees(const caf::type_erased_tuple& content) {
  if (content.size() != 2) return;
  if (content.match_element<msg::envelope<msg::Route>>(1)) {
    msg::view<msg::Route> route{content.get_as<msg::envelope<msg::Route>>(1)};
    const auto key = msg::read(route->getKey());
    auto i = all_.find(key.id);
    if (i == all_.end()) return;
    if (route->getPlan() == msg::TransferPlan::MOVE) ++moves_;
    i->second.attempt = key.attempt;
    i->second.prefill = route->getPrefill().getName().cStr();
    i->second.decode = route->getDecode().getName().cStr();
    change(key.id, i->second, phase::queued);
  } else if (content.match_element<msg::envelope<msg::RouteRequest>>(1)) {
    msg::view<msg::RouteRequest> asked{content.get_as<msg::envelope<msg::RouteRequest>>(1)};
    const auto key = msg::read(asked->getKey());
    auto i = all_.find(key.id);
    // A stream that is to move goes on where it is.
    if (i == all_.end() || i->second.attempt == key.attempt || asked->getMoveFrom().size() > 0)
      return;
    i->second = {phase::routing, key.attempt, {}, {}};
    change(key.id, i->second, phase::routing);
  } else if (content.match_element<msg::envelope<msg::Accepted>>(1)) {
    msg::view<msg::Accepted> accepted{content.get_as<msg::envelope<msg::Accepted>>(1)};
    advance(msg::read(accepted->getKey()), phase::prefilling);
  }
}

void phase_watch::sees_control(std::span<const std::byte> bytes) {
  auto message = transfer::decode_hand_over(bytes);
  if (!message) return;
  using m = transfer::hand_over_message;
  if (std::holds_alternative<m::grant>(message->body)) advance(message->key, phase::transferring);
  if (std::holds_alternative<m::end>(message->body)) advance(message->key, phase::adopting);
}

void phase_watch::tokens(const msg::request_id& id, bool all) {
  auto i = all_.find(id);
  if (i == all_.end()) return;
  const auto to = all ? phase::finishing : phase::decoding;
  if (i->second.now != to) change(id, i->second, to);
}

void phase_watch::advance(const msg::job_key& key, phase to) {
  auto i = all_.find(key.id);
  if (i == all_.end() || i->second.attempt != key.attempt || i->second.now >= to) return;
  change(key.id, i->second, to);
}

void phase_watch::change(const msg::request_id& id, state& s, phase to) {
  s.now = to;
  if (on_change) on_change(id, s);
}

}  // namespace troupe::sim
