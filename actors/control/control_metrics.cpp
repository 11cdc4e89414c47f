#include "actors/control/control_metrics.hpp"

#include <prometheus/family.h>

#include <utility>

namespace troupe::control {

namespace {

prometheus::Gauge* gauge(prometheus::Registry& r, const char* name, const char* help) {
  return &prometheus::BuildGauge().Name(name).Help(help).Register(r).Add({});
}
prometheus::Counter* counter(prometheus::Registry& r, const char* name, const char* help) {
  return &prometheus::BuildCounter().Name(name).Help(help).Register(r).Add({});
}

}  // namespace

control_metrics::control_metrics(std::shared_ptr<prometheus::Registry> registry)
    : registry_(std::move(registry)),
      term_(gauge(*registry_, "troupe_control_term", "Term of the assignment in force")),
      generation_(gauge(*registry_, "troupe_control_generation",
                        "Number of the assignment in force, within its term")),
      imbalance_(gauge(*registry_, "troupe_control_imbalance",
                       "Load of the hottest router shard over the mean of all, at the last look")),
      lost_(gauge(*registry_, "troupe_control_shards_lost", "Router shards that are counted out")),
      stuck_(gauge(*registry_, "troupe_control_stuck",
                   "1 while nothing, or not all, is decided; the log and the console's `shards` "
                   "say why")),
      assignments_(counter(*registry_, "troupe_control_assignments_total",
                           "Assignments of keys to router shards that were published")),
      moved_(counter(*registry_, "troupe_control_moved_total",
                     "Parts of the key space that they moved between live shards, added up")) {}

void control_metrics::show(const control_policy::view& now) {
  term_->Set(static_cast<double>(now.number.term));
  generation_->Set(static_cast<double>(now.number.generation));
  imbalance_->Set(now.imbalance);
  lost_->Set(static_cast<double>(now.lost.size()));
  stuck_->Set(now.problem.empty() ? 0 : 1);
}

}  // namespace troupe::control
