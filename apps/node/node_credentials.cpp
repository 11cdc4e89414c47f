#include "apps/node/node_credentials.hpp"

#include <fmt/format.h>

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
  const auto until = (*loaded)->own().not_after;
  if (until <= now)
    on_warning({where, fmt::format("{}: it ended on {}, and clients will refuse it; renew it",
                                   files.certificate, trust::format_date(until))});
  else if (until - now < trust::expiry_notice)
    on_warning({where, fmt::format("{}: it ends on {}; renew it", files.certificate,
                                   trust::format_date(until))});
  return *std::move(loaded);
}

}  // namespace

bool load_credentials(const config::cluster& c, const config::host& self, trust::time_point now,
                      const tell& on_problem, const tell& on_warning, node_credentials& out) {
  bool good = true;
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
