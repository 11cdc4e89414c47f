#pragma once

#include "actors/admission/budget_owner.hpp"
#include "actors/admission/retry_after.hpp"
#include "actors/request/waiting_room.hpp"
#include "tests/support/overload_engines.hpp"

#include <kj/array.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::request {

/// Steady overload of one model at some gateways: production's waiting rooms, budgets and their
/// owners before engines that are a time model. Each refusal's Retry-After is held against the
/// time until a shadow of the request, which takes nothing, would have been let in. A fake clock,
/// no actors; the same seed gives the same run.
class overload_world {
 public:
  /// Requests of one tenant.
  struct client {
    troupe::admission::tenant_limits limits;
    double share = 1;  ///< of all requests, by those of the others
    double size = 1;   ///< of its prompts, in those of `request_lengths`
    std::chrono::milliseconds timeout{60'000};
  };
  struct options {
    std::vector<client> clients;
    double load = 5;  ///< of the engines' capacity
    std::size_t gateways = 1;
    std::uint32_t requests_max = 4'096;  ///< places of each node
    overload_engines::options engines;
    request_lengths lengths;
    double warm_s = 30, measured_s = 120, after_s = 60;
    std::uint64_t seed = 1;
  };
  /// A refusal that told when to come back.
  struct refused {
    std::string tenant;
    std::string code;
    bool waited = false;       ///< it had been let in before
    bool by_deadline = false;  ///< the client's own time was shorter than what the tenant may wait
    double at = 0;             ///< s
    double told_s = 0;         ///< by `retry-after-ms`
    double header_s = 0;       ///< by `Retry-After`
    /// Until the shadow would have been let in; infinite: not before the end.
    double truth_s = std::numeric_limits<double>::infinity();

    static bool right(double told, double truth) {
      return told >= truth - step_s && told <= 1.2 * truth + 1;
    }
    bool header_right() const { return right(header_s, truth_s); }
    bool exact_right() const { return right(told_s, truth_s); }
  };
  /// Between two looks at the world; what is found is up to so much late.
  static constexpr double step_s = 0.01;

  explicit overload_world(options o)
      : options_(std::move(o)), draw_(options_.seed), engines_(options_.engines),
        price_(engines_.price()) {
    std::vector<troupe::admission::tenant_limits> limits;
    for (const auto& c : options_.clients) limits.push_back(c.limits);
    for (std::size_t i = 0; i < options_.gateways; ++i) names_.push_back("g" + std::to_string(i));
    for (std::size_t i = 0; i < options_.gateways; ++i) {
      gateways_.push_back({std::make_unique<waiting_room>(limits, names_[i], names_, 256, at(0)),
                           std::make_shared<admission>(options_.requests_max, 1ULL << 40U),
                           {}});
      for (const auto& l : limits)
        gateways_.back().owners.emplace(
            troupe::admission::budget_name(l.tenant, l.model),
            troupe::admission::budget_owner{{l.guaranteed_per_minute, l.burst, l.floor_per_minute,
                                             l.open_max, options_.gateways},
                                            names_,
                                            1,
                                            at(0)});
    }
  }

  void run() {
    double sizes = 0, shares = 0;
    for (const auto& c : options_.clients) {
      shares += c.share;
      sizes += c.share * c.size;
    }
    const double per_second = options_.load *
                              engines_.capacity(options_.lengths, sizes / shares, draw_).requests;
    const double end = options_.warm_s + options_.measured_s + options_.after_s;
    double next = 0;
    for (now_ = 0; now_ < end; now_ += step_s) {
      const auto tick = ++ticks_;
      if (tick % 100 == 1) supply();
      progress();
      for (; next <= now_; next += std::exponential_distribution<>{per_second}(draw_)) arrive();
      talk();
      if (tick % 2 == 0)
        for (std::size_t g = 0; g < gateways_.size(); ++g)
          carry_out(g, gateways_[g].room->pump("m", at(now_)));
      ask_shadows();
      if (now_ >= options_.warm_s) busy_ += engines_.running() * step_s;
    }
    used_ = busy_ / (engines_.slots() * (end - options_.warm_s));
  }

  const std::vector<refused>& all_refused() const { return refused_; }
  std::uint64_t begun() const { return begun_; }
  /// Of the engines' slots, after the first `warm_s`.
  double used() const { return used_; }
  std::uint64_t without_time() const { return without_time_; }

 private:
  using room_time = waiting_room::time_point;
  struct sink final : client_sink {
    void on_accepted(std::uint16_t, std::uint32_t, std::uint32_t, const std::string&) override {}
    void on_delta(std::uint16_t, msg::StreamDelta::Reader) override {}
    void on_finished(const totals&) override {}
    void on_failed(const failure&) override {}
  };
  struct gateway {
    std::unique_ptr<waiting_room> room;
    std::shared_ptr<admission> places;
    std::map<std::string, troupe::admission::budget_owner> owners;
  };
  struct in_engine {
    waiting_room::guest who;
    std::uint32_t prompt = 0, answer = 0;
  };
  struct shadow {
    std::size_t gateway, refusal;
    std::shared_ptr<submission> what;
  };

  static room_time at(double s) {
    return room_time{std::chrono::hours{1}} +
           std::chrono::duration_cast<room_time::duration>(troupe::admission::seconds{s});
  }
  waiting_room::terms terms(const gateway& g, std::uint64_t taken = 0) const {
    const auto free = g.places->free_requests();
    return {price_, forecast_, bytes_per_token, free - std::min<std::uint64_t>(free, taken)};
  }
  void supply() {
    const auto& e = options_.engines;
    for (auto& g : gateways_)
      g.room->gate().supply("m",
                            {engines_.slots(), engines_.running(),
                             static_cast<std::uint64_t>(e.engines * 0.05 / e.prompt_token_s),
                             static_cast<std::uint32_t>(gateways_.size()), e.engines},
                            e.engines / price_.seconds_per_mu());
  }
  void arrive() {
    std::vector<double> shares;
    for (const auto& c : options_.clients) shares.push_back(c.share);
    const auto& c = options_.clients[std::discrete_distribution<std::size_t>{shares.begin(),
                                                                             shares.end()}(draw_)];
    const auto g = std::uniform_int_distribution<std::size_t>{0, gateways_.size() - 1}(draw_);
    const auto tokens = std::max(1.0, c.size * options_.lengths.prompt(draw_));
    auto s = std::make_shared<submission>();
    s->id = {draw_(), ++last_id_};
    s->tenant = c.limits.tenant;
    s->model = c.limits.model;
    s->max_tokens = options_.lengths.answer_max;
    s->timeout = c.timeout;
    s->prompts = {prompt_of(tokens)};
    s->client = std::make_shared<sink>();
    s->arrived = at(now_);
    auto place = gateways_[g].places->enter(bytes_of(*s));
    if (!place) {
      ++without_time_;
      return;
    }
    auto t = terms(gateways_[g]);
    waiting_room::guest who{std::move(s), std::shared_ptr<ticket>{*std::move(place)}};
    carry_out(g, gateways_[g].room->arrive(std::move(who), t, at(now_)));
  }
  /// Prompts of about equal lengths are the same.
  std::shared_ptr<const prompt_content> prompt_of(double tokens) {
    const int bucket = static_cast<int>(std::round(std::log2(tokens) * 16));
    auto& p = prompts_[bucket];
    if (!p) {
      auto content = std::make_shared<prompt_content>();
      content->words = kj::heapArray<capnp::word>(static_cast<std::size_t>(
          std::ceil(std::exp2(bucket / 16.0) * bytes_per_token / sizeof(capnp::word))));
      p = std::move(content);
    }
    return p;
  }
  void carry_out(std::size_t g, std::vector<waiting_room::outcome> all) {
    for (auto& o : all) {
      const auto& s = *o.who.what;
      if (!o.why) {
        const auto prompt = static_cast<std::uint32_t>(
            std::ceil(static_cast<double>(bytes_of(s)) / bytes_per_token));
        const auto answer = options_.lengths.answer(draw_);
        engines_.begin(g, s.id.low, prompt, answer, now_);
        running_[s.id.low] = {std::move(o.who), prompt, answer};
        ++begun_;
        continue;
      }
      if (now_ < options_.warm_s || now_ >= options_.warm_s + options_.measured_s) continue;
      if (o.why->retry_after.count() == 0) {
        ++without_time_;
        continue;
      }
      refused r;
      r.tenant = s.tenant;
      r.code = o.why->code;
      r.waited = s.arrived < at(now_);
      r.by_deadline = s.timeout < wait_max_of(s.tenant);
      r.at = now_;
      r.told_s = static_cast<double>(o.why->retry_after.count()) / 1e3;
      r.header_s = static_cast<double>(troupe::admission::whole_seconds(o.why->retry_after));
      shadows_.push_back({g, refused_.size(), o.who.what});
      refused_.push_back(std::move(r));
    }
  }
  std::chrono::milliseconds wait_max_of(const std::string& tenant) const {
    for (const auto& c : options_.clients)
      if (c.limits.tenant == tenant) return c.limits.wait_max;
    return {};
  }
  void progress() {
    overload_engines::event e;
    while (engines_.next(now_, e)) {
      auto& room = *gateways_[e.gateway].room;
      const auto i = running_.find(e.id);
      const auto& id = i->second.who.what->id;
      if (!e.ended) {
        room.prefilled(id);
      } else {
        const auto& s = *i->second.who.what;
        forecast_.learn(s.tenant, s.model, i->second.answer);
        room.over(id, at(now_));
        room.settled(id, price_.mu({i->second.prompt, 0, i->second.answer, 0}), at(now_));
        running_.erase(i);
      }
      carry_out(e.gateway, room.pump("m", at(now_)));
    }
  }
  void talk() {
    for (int round = 0; round < 4; ++round)
      for (std::size_t g = 0; g < gateways_.size(); ++g) {
        auto& gate = gateways_[g].room->gate();
        const auto words = gate.words(at(now_));
        for (const auto& w : words) {
          auto& owner = gateways_[std::stoul(w.owner.substr(1))].owners.at(w.budget);
          gate.answered(w.budget, w.owner, owner.answer(names_[g], w.word, at(now_)), at(now_));
        }
        if (!words.empty()) carry_out(g, gateways_[g].room->pump("m", at(now_)));
      }
  }
  void ask_shadows() {
    std::erase_if(shadows_, [&](const shadow& s) {
      auto& g = gateways_[s.gateway];
      if (g.places->free_requests() == 0 || !g.room->would_admit(*s.what, terms(g, 1), at(now_)))
        return false;
      auto& r = refused_[s.refusal];
      r.truth_s = now_ - r.at;
      return true;
    });
  }

  static constexpr double bytes_per_token = 4;

  options options_;
  std::mt19937_64 draw_;
  overload_engines engines_;
  capacity::cost_model price_;
  capacity::output_forecast forecast_;
  std::vector<std::string> names_;
  std::vector<gateway> gateways_;
  std::map<int, std::shared_ptr<const prompt_content>> prompts_;
  std::map<std::uint64_t, in_engine> running_;  ///< by number
  std::vector<shadow> shadows_;
  std::vector<refused> refused_;
  double now_ = 0, busy_ = 0, used_ = 0;
  std::uint64_t ticks_ = 0, last_id_ = 0, begun_ = 0, without_time_ = 0;
};

}  // namespace troupe::request
