#include "actors/request/hub_tenants.hpp"

#include "actors/admission/budget_wire.hpp"
#include "actors/admission/budgets_actor.hpp"
#include "actors/request/hub.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::request {

namespace {

/// Words about budgets in one message.
constexpr std::size_t words_per_message_max = 1'024;
/// How often tenants' limits are looked at: while somebody waits, and while nobody does.
constexpr std::chrono::milliseconds busy_look{20};
constexpr std::chrono::milliseconds idle_look{250};
/// Lines about refused requests come no more often.
constexpr std::chrono::milliseconds refused_line_interval{1'000};

}  // namespace

hub_tenants::hub_tenants(caf::event_based_actor* self,
                         std::shared_ptr<const request_context> context, options o,
                         hub_accounts& accounts,
                         std::function<void(const waiting_room::guest&)> begin)
    : self_(self), context_(std::move(context)), options_(std::move(o)), accounts_(accounts),
      begin_(std::move(begin)), supply_(options_.step_tokens) {}

hub_tenants::time_point hub_tenants::now() const {
  return time_point{self_->clock().now().time_since_epoch()};
}

void hub_tenants::set_limits(std::vector<troupe::admission::tenant_limits> limits) {
  if (room_) {
    room_->gate().set_limits(std::move(limits), now());
    refresh_supply();  // also of models that nobody had limits for
    carry_out(room_->pump({}, now()));
    return;
  }
  if (limits.empty()) return;
  room_ = std::make_unique<waiting_room>(std::move(limits), options_.host, options_.gateways,
                                         context_->self.generation * troupe::admission::sets_max,
                                         now());
  counts_ = std::make_unique<tenant_metrics>(options_.metrics);
  refresh_supply();
  self_->send(self_, tenants_atom::value);
}

bool hub_tenants::arrive(const waiting_room::guest& x) {
  if (!room_ || x.what->tenant.empty()) return false;
  refresh_stale_supply();
  const auto& s = *x.what;
  const std::string tenant = s.tenant, model = s.model;
  x.what->arrived = now();
  const waiting_room::terms t{accounts_.costs().of_model(model), accounts_.forecast(),
                              supply_.bytes_per_token(model), context_->gate->free_requests(),
                              context_->gate->free_bytes()};
  carry_out(room_->arrive(x, t, now()));
  ask_for(tenant, model);
  return true;
}

void hub_tenants::carry_out(std::vector<waiting_room::outcome> all) {
  for (auto& o : all) {
    const auto& s = *o.who.what;
    if (o.why) {
      counts_->refused(s.tenant, s.model, o.why->code);
      say_refused(s, *o.why);
      s.client->on_failed(*o.why);
      continue;
    }
    o.who.what->waited = std::chrono::duration_cast<std::chrono::milliseconds>(now() - s.arrived);
    counts_->admitted(s.tenant, s.model, now() - s.arrived);
    begin_(o.who);
  }
}

/// Each is counted; under overload a line for each would be the most that the node does.
void hub_tenants::say_refused(const submission& s, const failure& why) {
  ++refused_unsaid_;
  if (now() < next_refused_line_) return;
  next_refused_line_ = now() + refused_line_interval;
  spdlog::info("event=request_refused request={} tenant={} model={} code={} retry_after_ms={} "
               "refused_since_last={}",
               s.external_id, s.tenant, s.model, why.code, why.retry_after.count(),
               std::exchange(refused_unsaid_, 0));
}

/// What a request lacks is asked for at once.
void hub_tenants::ask_for(const std::string& tenant, const std::string& model) {
  std::vector<troupe::admission::gate::outgoing> words;
  room_->gate().words_of(tenant, model, now(), words);
  send(words);
}

void hub_tenants::send(const std::vector<troupe::admission::gate::outgoing>& words) {
  std::map<std::string, std::vector<const troupe::admission::gate::outgoing*>> by_owner;
  for (const auto& w : words) by_owner[w.owner].push_back(&w);
  for (const auto& [owner, all] : by_owner)
    for (std::size_t at = 0; at < all.size(); at += words_per_message_max) {
      const auto count = std::min(words_per_message_max, all.size() - at);
      msg::draft<msg::BudgetWords> d{64 + count * 192};
      auto list = d->initWords(static_cast<unsigned>(count));
      for (std::size_t i = 0; i < count; ++i) {
        auto out = list[static_cast<unsigned>(i)];
        out.setBudget(all[at + i]->budget);
        write(out, all[at + i]->word);
      }
      if (auto e = std::move(d).freeze())
        context_->office->send({troupe::admission::budgets_name(owner), 0}, context_->self,
                               *std::move(e));
    }
}

void hub_tenants::answered(const link::origin& from, msg::BudgetAnswers::Reader in) {
  if (!room_) return;
  // All is read before any is heeded: a grant counts once.
  std::vector<std::pair<std::string, troupe::admission::owner_word>> all;
  for (auto a : in.getAnswers()) all.emplace_back(a.getBudget().cStr(), troupe::admission::read(a));
  const auto by = troupe::admission::host_of(from.from.name);
  for (const auto& [budget, word] : all) room_->gate().answered(budget, by, word, now());
  for (const auto& [budget, word] : all) {
    const auto slash = std::min(budget.find('/'), budget.size() - 1);
    const auto tenant = budget.substr(0, slash), model = budget.substr(slash + 1);
    carry_out(room_->pump(model, now()));
    ask_for(tenant, model);
  }
}

/// What engines can take may have changed, somebody's time may be over, and owners of budgets are
/// to hear from us.
void hub_tenants::look() {
  refresh_stale_supply();
  carry_out(room_->pump({}, now()));
  if (now() >= next_full_look_) {
    send(room_->gate().words(now()));
    counts_->show(room_->gate().accounts(now()));
    next_full_look_ = now() + idle_look;
  } else {
    for (const auto& [who, crowd] : room_->crowds()) ask_for(who.first, who.second);
  }
  self_->delayed_send(self_, room_->waiting().empty() ? idle_look : busy_look, tenants_atom::value);
}

/// It walks the directory: not for each of many reports and requests.
void hub_tenants::refresh_stale_supply() {
  if (supply_changed_ && now() >= next_refresh_) refresh_supply();
}

void hub_tenants::refresh_supply() {
  supply_changed_ = false;
  next_refresh_ = now() + busy_look;
  auto all = supply_.supply(*context_->view->get(), accounts_.costs(), now());
  for (const auto& model : options_.models) {
    auto& s = all[model];
    s.window.gateways = static_cast<std::uint32_t>(
        std::max<std::size_t>(1, options_.gateways.size()));
    room_->gate().supply(model, s.window, s.mu_per_second);
  }
}

/// A gateway's host can be reached, or not.
void hub_tenants::note_gateway(const directory::entry& e, bool there) {
  if (room_ && e.role == msg::Role::BUDGETS)
    room_->gate().reachable(troupe::admission::host_of(e.name), there, now());
}

bool hub_tenants::cancel(const cancel_request& x) {
  if (!room_) return false;
  const auto who = room_->leave(x.id, now());
  if (!who) return false;
  spdlog::info("event=request_cancelled request={} reason=\"{}\"", who->what->external_id,
               x.reason);
  const auto& s = *who->what;
  counts_->left(s.tenant, s.model);
  timeline t;
  t.id = s.external_id;
  t.tenant = s.tenant;
  t.model = s.model;
  t.status = "cancelled";
  t.waited_ms = t.total_ms = std::chrono::duration<double, std::milli>(now() - s.arrived).count();
  context_->timelines->put(t);
  carry_out(room_->pump(s.model, now()));
  return true;
}

void hub_tenants::over(const ended_request& x) {
  if (!room_ || x.tenant.empty()) return;
  room_->over(x.id, now());
  carry_out(room_->pump(x.model, now()));
}

void hub_tenants::prefilled(const std::vector<request_id>& all) {
  if (!room_ || all.empty()) return;
  for (const auto& id : all) room_->prefilled(id);
  carry_out(room_->pump({}, now()));
}

void hub_tenants::settled(const ended_request& x, const settlement& s) {
  if (!room_ || x.tenant.empty()) return;
  room_->settled(x.id, s.tenant_mu, now());
  counts_->charged(x.tenant, x.model, s.tenant_mu);
}

void hub_tenants::reported(msg::WorkerReport::Reader in) {
  supply_.note(in.getWorker().cStr(), {in.getGeneration(), in.getRunning() + in.getFurtherAnswers(),
                                       in.getQueued() + in.getPreparing() + in.getUnprepared(),
                                       in.getBytesPerToken(), now()});
  supply_changed_ = true;
}

void hub_tenants::changed(const directory::directory_changed& x) {
  supply_.update(x.what);
  supply_changed_ = true;
  for (const auto& e : x.what.removed) note_gateway(e, false);
  for (const auto& e : x.what.added_or_changed) note_gateway(e, true);
  if (!room_) return;
  refresh_supply();
  carry_out(room_->pump({}, now()));
}

void hub_tenants::report(requests_report& r) const {
  if (!room_) return;
  for (const auto& [number, who] : room_->waiting())
    r.requests.push_back(
        {who.what->id, who.what->external_id, who.what->model,
         std::chrono::duration_cast<std::chrono::milliseconds>(now() - who.what->arrived),
         bytes_of(*who.what), true});
  r.tenants = room_->gate().accounts(now());
}

}  // namespace troupe::request
