#pragma once

#include "actors/admission/budget_holder.hpp"
#include "actors/admission/budget_owner.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace troupe::admission {

/// Gateways, the ways between them, and their clocks, each with an offset and a rate of its own.
/// What is spent is noted in true time. No threads; by seed.
class budget_world {
 public:
  struct spent {
    double at;  ///< s, true time
    double mu;
    std::size_t gateway;
  };

  budget_world(budget_terms terms, std::uint64_t seed, std::string budget = "acme/m")
      : terms_(terms), random_(seed) {
    for (std::size_t i = 0; i < terms.gateways; ++i) names_.push_back("g" + std::to_string(i));
    order_ = owner_order(budget, names_);
    for (std::size_t i = 0; i < terms.gateways; ++i) {
      auto& g = gateways_.emplace_back();
      g.offset = std::uniform_real_distribution<>{0, 1e6}(random_);
      g.rate = 1 + std::uniform_real_distribution<>{-5e-4, 5e-4}(random_);
      start(i);
    }
  }

  double now() const { return now_; }
  std::size_t index_of(const std::string& name) const {
    return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }
  std::size_t preferred_owner() const { return index_of(order_.front()); }
  /// How often each gateway would like to begin a request per second, and what one costs.
  void demand(std::size_t gateway, double per_second, double mu) {
    gateways_[gateway].per_second = per_second;
    gateways_[gateway].cost = mu;
  }
  /// Of what is spent from now on: which part comes back, and up to how much later. It is then
  /// taken out of what was spent, at that time.
  void refunds(double part, double within) {
    refund_part_ = part;
    refund_within_ = within;
  }
  /// All that is spent until then comes back, at that time.
  void cancel_all_at(double t) { cancel_at_ = t; }
  void cut(std::size_t from, std::size_t to) { cut_.insert({from, to}); }
  void isolate(std::size_t g) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (i != g) {
        cut(i, g);
        cut(g, i);
      }
  }
  void heal() {
    cut_.clear();
    for (std::size_t i = 0; i < names_.size(); ++i)
      for (const auto& n : names_) gateways_[i].holder->reachable(n, true, clock(i));
  }
  void restart(std::size_t g) { start(g); }

  void run(double seconds) {
    for (const double until = now_ + seconds; now_ < until; now_ += step) one();
  }

  const std::vector<spent>& all_spent() const { return spent_; }
  double spent_between(double from, double to, std::optional<std::size_t> without = {}) const {
    double sum = 0;
    for (const auto& s : spent_)
      if (s.at >= from && s.at < to && s.gateway != without) sum += s.mu;
    return sum;
  }
  /// The most of any window.
  double worst_window(double length) const {
    double worst = 0, sum = 0;
    std::size_t first = 0;
    for (const auto& s : spent_) {
      sum += s.mu;
      while (spent_[first].at <= s.at - length) sum -= spent_[first++].mu;
      worst = std::max(worst, sum);
    }
    return worst;
  }
  std::size_t ruling() {
    std::size_t n = 0;
    for (std::size_t i = 0; i < names_.size(); ++i) n += rules(i) ? 1 : 0;
    return n;
  }
  bool rules(std::size_t g) { return gateways_[g].owner && gateways_[g].owner->rules(clock(g)); }
  bool on_floor(std::size_t g) { return gateways_[g].holder->on_floor(clock(g)); }
  /// MU that it could spend now.
  double held(std::size_t g) { return gateways_[g].holder->available(clock(g)); }
  std::uint32_t open_allowed(std::size_t g) {
    return gateways_[g].holder->open_allowed().value_or(0);
  }
  std::mt19937_64& random() { return random_; }
  std::uint64_t words() const { return words_; }

 private:
  static constexpr double step = 0.005;
  struct gateway {
    double offset = 0, rate = 1;
    std::unique_ptr<budget_holder> holder;
    std::unique_ptr<budget_owner> owner;
    std::uint64_t incarnation = 0;
    double per_second = 0, cost = 1, waiting = 0;
  };
  struct due_refund {
    double at, mu;
    std::size_t gateway;
    std::uint64_t incarnation;
  };
  struct message {
    double due;
    std::size_t from, to;
    std::uint64_t to_incarnation;
    std::optional<holder_word> word;
    std::optional<owner_word> answer;
  };

  void start(std::size_t i) {
    auto& g = gateways_[i];
    ++g.incarnation;
    g.owner.reset();
    g.holder = std::make_unique<budget_holder>(terms_, order_, g.incarnation, clock(i));
  }
  time_point clock(std::size_t i) const {
    const auto& g = gateways_[i];
    return time_point{} +
           std::chrono::duration_cast<time_point::duration>(seconds{g.offset + now_ * g.rate});
  }
  void send(message m) {
    if (cut_.contains({m.from, m.to})) return;
    ++words_;
    m.due = m.from == m.to ? now_ : now_ + std::exponential_distribution<>{200.0}(random_);
    // Links keep order.
    for (const auto& other : wire_)
      if (other.from == m.from && other.to == m.to) m.due = std::max(m.due, other.due);
    m.to_incarnation = gateways_[m.to].incarnation;
    wire_.push_back(m);
  }
  void one() {
    for (std::size_t k = 0; k < refunds_.size();) {
      if (refunds_[k].at > now_) {
        ++k;
        continue;
      }
      const auto r = refunds_[k];
      refunds_[k] = refunds_.back();
      refunds_.pop_back();
      auto& g = gateways_[r.gateway];
      if (g.incarnation != r.incarnation) continue;
      g.holder->refund(r.mu, clock(r.gateway));
      spent_.push_back({now_, -r.mu, r.gateway});
    }
    for (std::size_t i = 0; i < gateways_.size(); ++i) {
      auto& g = gateways_[i];
      const auto at = clock(i);
      g.waiting = std::min(g.waiting + g.per_second * step, 20.0);
      while (g.waiting >= 1 && g.holder->affords(g.cost, at)) {
        g.holder->spend(g.cost, at);
        g.waiting -= 1;
        spent_.push_back({now_, g.cost, i});
        if (now_ < cancel_at_)
          refunds_.push_back({cancel_at_, g.cost, i, g.incarnation});
        else if (refund_part_ > 0)
          refunds_.push_back({now_ + refund_within_ * std::uniform_real_distribution<>{}(random_),
                              g.cost * refund_part_, i, g.incarnation});
      }
      const double need = g.waiting >= 1 ? g.cost : 0;
      if (g.holder->word_due(need, 0, at)) {
        const auto to = g.holder->owner(at);
        auto w = g.holder->word(need, 0, 0, at);
        if (to) send({0, i, index_of(*to), 0, w, {}});
      }
    }
    for (std::size_t k = 0; k < wire_.size();) {
      if (wire_[k].due > now_) {
        ++k;
        continue;
      }
      const auto m = wire_[k];
      wire_.erase(wire_.begin() + static_cast<std::ptrdiff_t>(k));
      auto& g = gateways_[m.to];
      if (g.incarnation != m.to_incarnation) continue;
      if (m.word) {
        if (!g.owner)
          g.owner = std::make_unique<budget_owner>(terms_, names_, g.incarnation, clock(m.to));
        send({0, m.to, m.from, 0, {}, g.owner->answer(names_[m.from], *m.word, clock(m.to))});
      } else {
        g.holder->answered(names_[m.from], *m.answer, clock(m.to));
      }
    }
  }

  budget_terms terms_;
  std::mt19937_64 random_;
  std::vector<std::string> names_, order_;
  std::vector<gateway> gateways_;
  std::deque<message> wire_;
  std::set<std::pair<std::size_t, std::size_t>> cut_;
  std::vector<spent> spent_;
  std::vector<due_refund> refunds_;
  double refund_part_ = 0, refund_within_ = 0, cancel_at_ = 0;
  double now_ = 0;
  std::uint64_t words_ = 0;
};

}  // namespace troupe::admission
