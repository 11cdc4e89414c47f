#pragma once

#include "actors/trust/certificate_files.hpp"

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace troupe::test {

/// A CA and certificates that it signed, in a folder that goes with it.
struct certificates {
  certificates() {
    auto name = (std::filesystem::temp_directory_path() / "troupe-trust-XXXXXX").string();
    folder.path = ::mkdtemp(name.data());
    write_ca();
  }
  ~certificates() { std::filesystem::remove_all(folder.path); }
  certificates(const certificates&) = delete;
  certificates& operator=(const certificates&) = delete;

  void write_ca() {
    ca = trust::make_ca("test", trust::ca_validity, now()).value();
    (void)trust::write_identity(folder.ca(), folder.ca_key(), ca, trust::existing::replace);
  }
  static trust::time_point now() { return std::chrono::system_clock::now(); }

  trust::identity_pem issue(const std::string& name, trust::role as = trust::role::host,
                            trust::time_point at = now()) const {
    trust::request r;
    r.name = name;
    r.as = as;
    r.dns = {name};
    r.addresses = {"127.0.0.1"};
    return trust::issue(ca, r, at).value();
  }
  void write_host(const std::string& name, const trust::identity_pem& what) const {
    (void)trust::write_identity(folder.host(name), folder.host_key(name), what,
                                trust::existing::replace);
  }
  void write_host(const std::string& name) const { write_host(name, issue(name)); }

  trust::certificate_folder folder;
  trust::identity_pem ca;
};

}  // namespace troupe::test
