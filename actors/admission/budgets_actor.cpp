#include "actors/admission/budgets_actor.hpp"

#include "actors/admission/budget_owner.hpp"
#include "actors/admission/budget_wire.hpp"
#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>

#include <map>
#include <utility>

namespace troupe::admission {

namespace {

struct budgets_state {
  caf::event_based_actor* self;
  budgets_options options;
  std::map<std::string, budget_terms> terms;
  std::map<std::string, budget_owner> owners;  ///< of those that somebody has asked for
  std::uint64_t incarnation = 0;
  static constexpr const char* name = "budgets";

  explicit budgets_state(caf::event_based_actor* s) : self(s) {}
  ~budgets_state() {
    if (options.office) options.office->unbind(budgets_name(options.host), options.generation);
  }

  time_point now() const { return time_point{self->clock().now().time_since_epoch()}; }

  void set(const std::vector<tenant_limits>& limits) {
    if (incarnation % sets_max != sets_max - 1) ++incarnation;
    terms.clear();
    for (const auto& l : limits)
      terms[budget_name(l.tenant, l.model)] = {l.guaranteed_per_minute, l.burst, l.floor_per_minute,
                                               l.open_max, options.gateways.size()};
    std::erase_if(owners, [&](const auto& o) { return !terms.contains(o.first); });
    for (auto& [budget, owner] : owners) owner.set_terms(terms.at(budget), now());
  }

  budget_owner* owner_of(const std::string& budget) {
    const auto t = terms.find(budget);
    if (t == terms.end()) return nullptr;
    return &owners.try_emplace(budget, t->second, options.gateways, incarnation, now())
                .first->second;
  }

  void answer(const link::origin& from, msg::BudgetWords::Reader in) {
    // All is read before any is heeded: what a word gives back is counted once.
    std::vector<std::pair<std::string, holder_word>> words;
    for (auto w : in.getWords()) words.emplace_back(w.getBudget().cStr(), read(w));
    const auto gateway = host_of(from.from.name);
    std::vector<std::pair<const std::string*, owner_word>> answers;
    for (const auto& [budget, word] : words)
      if (auto* owner = owner_of(budget))
        answers.emplace_back(&budget, owner->answer(gateway, word, now()));
    if (answers.empty()) return;
    msg::draft<msg::BudgetAnswers> d{64 + answers.size() * 160};
    auto list = d->initAnswers(static_cast<unsigned>(answers.size()));
    for (unsigned i = 0; i < list.size(); ++i) {
      list[i].setBudget(*answers[i].first);
      write(list[i], answers[i].second);
    }
    // Lost, it is as if it had been lost on its way: the words are said again. By name alone: what
    // the directory calls a hub's incarnation is another number than the hub's own, which the
    // answer's sequences are told apart by.
    if (auto e = std::move(d).freeze())
      options.office->send({from.from.name, 0}, {budgets_name(options.host), options.generation},
                           *std::move(e));
  }
};

caf::behavior behavior(caf::stateful_actor<budgets_state>* self, budgets_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.incarnation = s.options.generation * sets_max;
  s.set(s.options.limits);
  s.options.office->bind(budgets_name(s.options.host), s.options.generation,
                         caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  return {
      link::on<msg::BudgetWords>(
          [&s](const link::origin& from, msg::BudgetWords::Reader in) { s.answer(from, in); }),
      [self](const set_budgets& x) { self->state.set(x.limits); },
      supervision::answers_for_itself(self,
                                      [&s] {
                                        std::size_t ruled = 0;
                                        for (const auto& [budget, owner] : s.owners)
                                          ruled += owner.rules(s.now()) ? 1 : 0;
                                        return supervision::actor_facts{
                                            {"budgets", std::to_string(s.owners.size())},
                                            {"ruled here", std::to_string(ruled)}};
                                      }),
  };
}

}  // namespace

std::string budgets_name(const std::string& host) { return "budgets/" + host; }

std::string host_of(const std::string& name) {
  const auto slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

caf::actor spawn_budgets(caf::actor_system& system, budgets_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::admission
