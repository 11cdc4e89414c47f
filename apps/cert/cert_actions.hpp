#pragma once

#include "actors/trust/certificate.hpp"

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace troupe::apps::cert {

/// Where a command speaks, and the time that it takes for now.
struct surroundings {
  std::ostream& out;
  std::ostream& err;
  trust::time_point now;
};

struct create_options {
  std::string config_file;
  trust::days validity = trust::certificate_validity;
  bool new_ca = false;  ///< replaces the CA, and all that it has signed
};

struct renew_options {
  std::string config_file;
  std::vector<std::string> hosts;  ///< empty: all
  trust::days validity = trust::certificate_validity;
  bool new_keys = false;
};

struct console_options {
  std::string config_file;
  std::string name;
  trust::role as = trust::role::viewer;
  trust::days validity = trust::certificate_validity;
  bool replace = false;
};

/// What `troupe cert` does, in the folder that the cluster file names. All return an exit code
/// (`exit_failure` for what a file or certificate is wrong with, `exit_config` for the cluster
/// file), and say each problem with its path.

/// A CA where there is none, and a certificate for each host that has none. What is there stays,
/// unless `new_ca` says otherwise; what doesn't fit the cluster file any more is named.
int create(const create_options& o, const surroundings& at);
/// New certificates for hosts, by their keys (or new ones), from the CA that is there.
int renew(const renew_options& o, const surroundings& at);
/// A certificate for a person's console.
int make_console(const console_options& o, const surroundings& at);
/// All certificates of the folder: until when, and what is wrong with them.
int show(const std::string& config_file, const surroundings& at);

}  // namespace troupe::apps::cert
