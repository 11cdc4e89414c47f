#pragma once

#include "config/calibration.hpp"
#include "config/cluster.hpp"

#include <string>

namespace troupe::config {

/// Sets `digest` and `section_digests`. They cover every value, defaults included, as written:
/// paths before expansion, since hosts may keep a model in different places. Where a value stands
/// and how it is spelled ("60s", "1m") makes no difference. The files that pools' `costs` name are
/// read: what they say belongs to it, as the section `costs`; one that cannot be read has none.
void set_digests(cluster& c);

/// The whole configuration, defaults included, as a cluster file that means the same; with
/// `with_origins`, each line ends in a comment that says where its value comes from
/// (`file:line:column` or `default`).
std::string print_effective(const cluster& c, bool with_origins);

/// [costs] of a calibration file, each value in full.
std::string print_costs(const calibration& c);

/// All keys with what they accept, their defaults and their meaning, for people.
std::string print_reference();

}  // namespace troupe::config
