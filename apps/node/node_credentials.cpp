#include "apps/node/node_credentials.hpp"

#include "actors/trust/certificate_files.hpp"
#include "config/check.hpp"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>

namespace troupe::apps {

namespace {

using tell = std::function<void(const config::problem&)>;

config::location place_of(const config::cluster& c, const std::string& key,
                          const config::location& otherwise) {
  const auto at = c.origins.find(key);
  return at == c.origins.end() ? otherwise : at->second;
}

std::shared_ptr<trust::credentials> load(trust::credential_files files, trust::tls_use use,
                                         const config::location& where, trust::time_point now,
                                         const tell& on_problem, const tell& on_warning) {
  auto loaded = trust::credentials::load(files, use);
  if (!loaded) {
    on_problem({where, loaded.error().message});
    return nullptr;
  }
  struct stat s {};
  if (::stat(files.key.c_str(), &s) == 0 && (s.st_mode & S_IROTH) != 0)
    on_warning({where, fmt::format("{}: everybody on this machine may read this private key; "
                                   "chmod 600 ends that",
                                   files.key)});
  const auto until = (*loaded)->own().not_after;
  if (until <= now)
    on_warning({where, fmt::format("{}: it ended on {}, and clients will refuse it; renew it",
                                   files.certificate, trust::format_date(until))});
  else if (until - now < trust::expiry_notice)
    on_warning({where, fmt::format("{}: it ends on {}; renew it", files.certificate,
                                   trust::format_date(until))});
  return *std::move(loaded);
}

/// A certificate by which peers will know this host.
bool is_ours(const config::host& self, const trust::facts& says, const std::string& file,
             const config::location& where, const tell& on_problem) {
  if (says.as != trust::role::host) {
    on_problem({where, fmt::format("{}: it is not a host's certificate; `troupe cert renew` makes "
                                   "one",
                                   file)});
    return false;
  }
  const auto& names = says.dns;
  if (std::find(names.begin(), names.end(), self.name) != names.end()) return true;
  on_problem({where, fmt::format("{}: it is the certificate of \"{}\", and peers would refuse host "
                                 "\"{}\" with it",
                                 file, says.name, self.name)});
  return false;
}

}  // namespace

bool load_credentials(const config::cluster& c, const config::host& self, trust::time_point now,
                      const tell& on_problem, const tell& on_warning, node_credentials& out) {
  bool good = true;
  const bool links = config::links_use_tls(c), consoles = config::console_uses_tls(c, self);
  if (links || consoles) {
    const auto where = place_of(c, "cluster.certificates", self.where);
    const trust::certificate_folder folder{c.section.certificates};
    const auto own = load({folder.host(self.name), folder.host_key(self.name), folder.ca()},
                          trust::tls_use::cluster, where, now, on_problem, on_warning);
    if (!own)
      on_problem({where,
                  "links between hosts, and consoles beyond loopback, use TLS: `troupe cert "
                  "create` makes the certificates; only on a private network, insecure_links "
                  "= true in [cluster] does without"});
    good = own && is_ours(self, own->own(), folder.host(self.name), where, on_problem);
    if (links) out.links = own;
    if (consoles) out.consoles = own;
  }
  for (std::size_t i = 0; i < c.gateways.size(); ++i) {
    const auto& g = c.gateways[i];
    if (g.host != self.name) continue;
    if (g.certificate.empty()) break;  // of several, a node serves the first
    out.gateway = load({g.certificate, g.key, {}}, trust::tls_use::clients,
                       place_of(c, fmt::format("gateway[{}].certificate", i), g.where), now,
                       on_problem, on_warning);
    good = good && out.gateway != nullptr;
    break;
  }
  return good;
}

}  // namespace troupe::apps
