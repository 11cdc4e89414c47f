#include "apps/cert/cert_actions.hpp"

#include "actors/trust/certificate_files.hpp"
#include "config/parse.hpp"
#include "config/problem.hpp"
#include "config/values.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace troupe::apps::cert {

namespace fs = std::filesystem;
using trust::certificate_folder;
using trust::existing;
using trust::identity_pem;

namespace {

/// Only the owner may look into a folder with keys.
constexpr mode_t folder_mode = 0700;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// One command at work: the cluster, its folder, and where to speak.
class work {
 public:
  explicit work(const surroundings& at) : at_(at) {}

  bool load(const std::string& file) {
    auto loaded = config::load(file);
    for (const auto& p : loaded.problems) at_.err << to_string(p) << "\n";
    if (!loaded) return false;
    cluster_ = std::move(*loaded.value);
    folder_.path = cluster_.section.certificates;
    return true;
  }

  const config::cluster& cluster() const { return cluster_; }
  const certificate_folder& folder() const { return folder_; }

  int fail(const error& why) {
    at_.err << "troupe cert: " << why.message << "\n";
    return exit_failure;
  }

  void say(const std::string& line) { at_.out << line << "\n"; }

  int make_folder() {
    if (exists(folder_.path)) return exit_ok;
    std::error_code failure;
    fs::create_directories(fs::path{folder_.path}.parent_path(), failure);
    if (::mkdir(folder_.path.c_str(), folder_mode) == 0) return exit_ok;
    return fail({"", fmt::format("{}: the folder cannot be made: {}", folder_.path,
                                 std::generic_category().message(errno))});
  }

  /// Of the cluster, with its key.
  expected<identity_pem> ca() const {
    if (!exists(folder_.ca()) && exists(folder_.ca_key()))
      return error{"no_ca", folder_.ca() +
                                ": it is gone, though the CA's key is here; `troupe cert "
                                "create --new-ca` makes a new CA, and all certificates "
                                "anew"};
    if (!exists(folder_.ca()))
      return error{"no_ca", folder_.ca() + ": there is no CA; `troupe cert create` makes one"};
    if (!exists(folder_.ca_key()))
      return error{"no_ca", folder_.ca_key() +
                                ": the CA's key is not here; certificates are made where it is"};
    return trust::read_identity(folder_.ca(), folder_.ca_key());
  }

  int make_ca(existing old) {
    auto made = trust::make_ca(cluster_.section.id, trust::ca_validity, at_.now);
    if (!made) return fail(made.error());
    if (auto done = trust::write_identity(folder_.ca(), folder_.ca_key(), *made, old); !done)
      return fail(done.error());
    say(fmt::format("{}: new CA, until {}; keep {} where no host needs it, and safe", folder_.ca(),
                    trust::format_date(at_.now + trust::ca_validity), folder_.ca_key()));
    return exit_ok;
  }

  /// `keep_key`: the key that lies there is certified again.
  int make(const identity_pem& ca, const trust::request& what, const std::string& certificate,
           const std::string& key, bool keep_key, existing old) {
    std::string known;
    if (keep_key && exists(key)) {
      auto text = trust::read_pem_file(key);
      if (!text) return fail(text.error());
      known = *std::move(text);
    }
    auto made = trust::issue(ca, what, at_.now, known);
    if (!made) return fail({"", fmt::format("{}: {}", certificate, made.error().message)});
    auto done = known.empty() ? trust::write_identity(certificate, key, *made, old)
                              : trust::write_pem_file(certificate, made->certificate, false, old);
    if (!done) return fail(done.error());
    const auto facts = trust::read_certificate(made->certificate);
    auto names = facts->dns;
    names.insert(names.end(), facts->addresses.begin(), facts->addresses.end());
    say(fmt::format("{}: {} \"{}\"{}{}, until {}", certificate, trust::to_string(what.as),
                    what.name, names.empty() ? "" : " at ", fmt::join(names, ", "),
                    trust::format_date(facts->not_after)));
    return exit_ok;
  }

  int make_host(const identity_pem& ca, const config::host& h, trust::days validity, bool keep_key,
                existing old) {
    auto what = trust::host_request(cluster_, h);
    what.validity = validity;
    return make(ca, what, folder_.host(h.name), folder_.host_key(h.name), keep_key, old);
  }

  /// What is wrong with a certificate; empty: nothing.
  std::string complaint(const std::string& path, const std::string& key,
                        const config::host* host) const {
    auto pem = trust::read_pem_file(path);
    if (!pem) return pem.error().message;
    // A certificate's key lies at its own host only.
    if (exists(key)) {
      if (auto pair = trust::read_identity(path, key); !pair) return pair.error().message;
      struct stat s {};
      if (::stat(key.c_str(), &s) == 0 && (s.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return fmt::format("{}: others than its owner may read it: chmod 600", key);
    }
    auto ca = trust::read_pem_file(folder_.ca());
    if (!ca) return ca.error().message;
    if (auto good = trust::check_issued(*pem, *ca, at_.now); !good) return good.error().message;
    if (host == nullptr) return {};
    const auto facts = trust::read_certificate(*pem);
    const auto missing = trust::missing_names(*facts, trust::host_request(cluster_, *host));
    return missing.empty() ? ""
                           : fmt::format("the cluster file has {} for it, which it does not name",
                                         fmt::join(missing, ", "));
  }

 private:
  surroundings at_;
  config::cluster cluster_;
  certificate_folder folder_;
};

std::string left(trust::time_point until, trust::time_point now) {
  const auto days = std::chrono::floor<trust::days>(until - now).count();
  if (days < 0) return "ended";
  return fmt::format("{} day{} left", days, days == 1 ? "" : "s");
}

}  // namespace

int create(const create_options& o, const surroundings& at) {
  work w{at};
  if (!w.load(o.config_file)) return exit_config;
  if (int code = w.make_folder(); code != exit_ok) return code;
  const auto old = o.new_ca ? existing::replace : existing::keep;
  const auto& folder = w.folder();
  if (o.new_ca || (!exists(folder.ca()) && !exists(folder.ca_key())))
    if (int code = w.make_ca(old); code != exit_ok) return code;
  const auto ca = w.ca();
  if (!ca) return w.fail(ca.error());
  int code = exit_ok;
  for (const auto& h : w.cluster().hosts) {
    const auto path = folder.host(h.name);
    if (o.new_ca || !exists(path)) {
      if (w.make_host(*ca, h, o.validity, !o.new_ca, old) != exit_ok) code = exit_failure;
      continue;
    }
    if (const auto why = w.complaint(path, folder.host_key(h.name), &h); why.empty())
      w.say(path + ": kept");
    else
      code = w.fail(
          {"", fmt::format("{}: kept, but {}; `troupe cert renew` makes a new one", path, why)});
  }
  return code;
}

int renew(const renew_options& o, const surroundings& at) {
  work w{at};
  if (!w.load(o.config_file)) return exit_config;
  for (const auto& name : o.hosts)
    if (w.cluster().find_host(name) == nullptr) {
      w.fail({"", fmt::format("{}: no [[host]] is called '{}'", o.config_file, name)});
      return exit_config;
    }
  const auto ca = w.ca();
  if (!ca) return w.fail(ca.error());
  int code = exit_ok;
  for (const auto& h : w.cluster().hosts)
    if (o.hosts.empty() || std::find(o.hosts.begin(), o.hosts.end(), h.name) != o.hosts.end())
      if (w.make_host(*ca, h, o.validity, !o.new_keys, existing::replace) != exit_ok)
        code = exit_failure;
  return code;
}

int make_console(const console_options& o, const surroundings& at) {
  work w{at};
  if (!w.load(o.config_file)) return exit_config;
  if (!config::is_name(o.name)) {
    w.fail({"", fmt::format("'{}' is no name: letters, digits, '-', '_' and inner dots", o.name)});
    return exit_usage;
  }
  const auto ca = w.ca();
  if (!ca) return w.fail(ca.error());
  trust::request what;
  what.name = o.name;
  what.as = o.as;
  what.validity = o.validity;
  return w.make(*ca, what, w.folder().console(o.name), w.folder().console_key(o.name), false,
                o.replace ? existing::replace : existing::keep);
}

int show(const std::string& config_file, const surroundings& at) {
  work w{at};
  if (!w.load(config_file)) return exit_config;
  std::error_code failure;
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator{w.folder().path, failure})
    if (entry.path().extension() == ".pem") files.push_back(entry.path().string());
  if (failure || files.empty())
    return w.fail({"", fmt::format("{}: there are no certificates; `troupe cert create` makes them",
                                   w.folder().path)});
  std::sort(files.begin(), files.end());
  int code = exit_ok;
  for (const auto& path : files) {
    const auto pem = trust::read_pem_file(path);
    const auto facts = pem ? trust::read_certificate(*pem) : expected<trust::facts>{pem.error()};
    if (!facts) {
      code = w.fail({"", fmt::format("{}: {}", path, facts.error().message)});
      continue;
    }
    const auto* host = facts->as == trust::role::host ? w.cluster().find_host(facts->name)
                                                      : nullptr;
    const auto key = fs::path{path}.replace_extension(".key").string();
    w.say(fmt::format("{}: {} \"{}\", until {} ({})", path, trust::to_string(facts->as),
                      facts->name, trust::format_date(facts->not_after),
                      left(facts->not_after, at.now)));
    if (const auto why = w.complaint(path, key, host); !why.empty())
      code = w.fail({"", fmt::format("{}: {}", path, why)});
    else if (facts->not_after - at.now < trust::expiry_notice)
      code = w.fail({"", path + ": renew it: `troupe cert renew`"});
    if (facts->as == trust::role::host && host == nullptr)
      w.say(path + ": the cluster file has no such host");
  }
  for (const auto& h : w.cluster().hosts)
    if (!exists(w.folder().host(h.name)))
      code = w.fail({"", fmt::format("{}: missing", w.folder().host(h.name))});
  return code;
}

}  // namespace troupe::apps::cert
