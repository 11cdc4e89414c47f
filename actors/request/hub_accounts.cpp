#include "actors/request/hub_accounts.hpp"

#include <caf/all.hpp>

#include <utility>

namespace troupe::request {

hub_accounts::hub_accounts(caf::event_based_actor* self,
                           std::shared_ptr<const request_context> context,
                           std::vector<cost_book::pool> pools,
                           std::shared_ptr<prometheus::Registry> metrics)
    : self_(self), context_(std::move(context)), costs_(std::move(pools)),
      counts_(std::move(metrics)) {}

bool hub_accounts::over(const std::shared_ptr<ended_request>& what) {
  if (what->work.owed() == 0) {
    settle(*what);
    return false;
  }
  if (unsettled_.size() >= unsettled_max)
    if (const auto oldest = waited_for_.take_first()) settle_late(*oldest);
  unsettled_[what->id] = what;
  wake(waited_for_.add(what->id, self_->clock().now() + costs_wait));
  return true;
}

void hub_accounts::told(const cost_told& x) {
  const auto i = unsettled_.find(x.key.id);
  if (i == unsettled_.end()) return;
  i->second->work.told(x.worker, x.key, x.cost);
  if (i->second->work.owed() == 0) settle_late(x.key.id);
}

void hub_accounts::settle_late(const request_id& id) {
  const auto i = unsettled_.find(id);
  if (i == unsettled_.end()) return;
  const auto what = std::move(i->second);
  unsettled_.erase(i);
  waited_for_.remove(id);
  settle(*what);
}

void hub_accounts::settle_unheard() {
  for (const auto& id : waited_for_.take_late(self_->clock().now())) settle_late(id);
  wake(waited_for_.woken(self_->clock().now()));
}

void hub_accounts::wake(const std::optional<time_point>& when) {
  if (when) self_->delayed_send(self_, *when - self_->clock().now(), costs_atom::value);
}

/// Once for each request, whatever has ended it.
void hub_accounts::settle(const ended_request& x) {
  auto s = std::make_shared<const settlement>(settle_work(x, costs_));
  counts_.settled(x.model, *s, costs_.of_model(x.model).seconds_per_mu());
  if (on_settled) on_settled(x, *s);
  for (const auto& p : x.prompts)
    for (const auto& a : p.answers)
      if (a.ended) forecast_.learn(x.tenant, x.model, a.tokens, a.cut);
  context_->timelines->settle(x, std::move(s));
}

}  // namespace troupe::request
