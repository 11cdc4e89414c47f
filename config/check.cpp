#include "config/check.hpp"

#include "config/parse.hpp"
#include "config/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

namespace troupe::config {

namespace {

/// Enough of a key's hash to find it in the file.
constexpr std::size_t shown_hash_digits = 8;

class checker {
 public:
  explicit checker(const cluster& c) : c_(c) {}

  std::vector<problem> run() {
    if (!counts()) return std::move(problems_);
    presence();
    names();
    for (std::size_t i = 0; i < c_.pools.size(); ++i) {
      pool_references(c_.pools[i], path("pool", i));
      pool_sizes(c_.pools[i], path("pool", i));
      pool_cpus(c_.pools[i], path("pool", i));
      pool_effects(c_.pools[i], path("pool", i));
    }
    models();
    hosts();
    services();
    control();
    tenants();
    trust();
    listeners();
    transfers();
    times();
    return std::move(problems_);
  }

 private:
  static std::string path(const char* section, std::size_t i) {
    return fmt::format("{}[{}]", section, i);
  }

  bool is_set(const std::string& key) const { return c_.origins.count(key) != 0; }

  /// Of a value in the file, or else of its record.
  location where(const std::string& key, const location& record) const {
    const auto i = c_.origins.find(key);
    return i == c_.origins.end() ? record : i->second;
  }

  location file() const { return {c_.file, 0, 0}; }

  void fail(location at, std::string message) {
    problems_.push_back({std::move(at), std::move(message)});
  }

  template <class T>
  static std::vector<std::string> names_of(const std::vector<T>& all) {
    std::vector<std::string> out;
    for (const auto& x : all) out.push_back(x.name);
    return out;
  }

  /// Complains unless `name` is among `all`; an empty name is one that could not be read.
  template <class T>
  void refer(const char* what, const std::string& name, const std::vector<T>& all, location at) {
    if (name.empty() ||
        std::any_of(all.begin(), all.end(), [&](const T& x) { return x.name == name; }))
      return;
    // A hint costs a look at every name: not for problems that aren't listed anyway.
    const auto near = problems_.size() < problems_max ? nearest(name, names_of(all)) : "";
    fail(std::move(at),
         fmt::format("there is no {} \"{}\"{}", what, name,
                     near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  }

  template <class T>
  void unique(const char* section, const std::vector<T>& all) {
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (!all[i].name.empty() && all[i].name == all[j].name) {
          fail(where(path(section, i) + ".name", all[i].where),
               fmt::format("there are two {}s \"{}\"; the other is at {}", section, all[i].name,
                           to_string(all[j].where)));
          break;
        }
  }

  // -- what must be there at all, and how much may -------------------------------

  template <class T>
  bool at_most(std::size_t most, const char* what, const std::vector<T>& all) {
    if (all.size() <= most) return true;
    fail(all[most].where, fmt::format("{} {}s; at most {} are supported", all.size(), what, most));
    return false;
  }

  bool counts() {
    const bool hosts_fit = at_most(hosts_max, "host", c_.hosts);
    const bool models_fit = at_most(records_max, "model", c_.models);
    const bool pools_fit = at_most(records_max, "pool", c_.pools);
    const bool gateways_fit = at_most(records_max, "gateway", c_.gateways);
    const bool routers_fit = at_most(routers_max, "router", c_.routers);
    const bool tenants_fit = at_most(records_max, "tenant", c_.tenants);
    return hosts_fit && models_fit && pools_fit && gateways_fit && routers_fit && tenants_fit;
  }

  void presence() {
    if (c_.hosts.empty()) fail(file(), "no [[host]]: a cluster has at least one");
    if (c_.models.empty()) fail(file(), "no [[model]]: there is nothing to serve");
    if (c_.pools.empty()) fail(file(), "no [[pool]]: nothing computes");
    if (c_.gateways.empty()) fail(file(), "no [[gateway]]: clients have no way in");
    if (c_.routers.empty()) fail(file(), "no [[router]]: nobody decides on routes");
  }

  void names() {
    unique("host", c_.hosts);
    unique("model", c_.models);
    unique("pool", c_.pools);
    unique("tenant", c_.tenants);
  }

  // -- pools --------------------------------------------------------------------

  void pool_references(const pool& p, const std::string& at) {
    refer("model", p.model, c_.models, where(at + ".model", p.where));
    std::set<std::string> seen;
    for (const auto& h : p.hosts) {
      refer("host", h, c_.hosts, where(at + ".hosts", p.where));
      if (!seen.insert(h).second)
        fail(where(at + ".hosts", p.where),
             fmt::format("host \"{}\" stands twice; engines_per_host says how many engines it runs",
                         h));
    }
    if (p.hosts.empty() && is_set(at + ".hosts"))
      fail(where(at + ".hosts", p.where),
           fmt::format("pool \"{}\" has no hosts, so it runs no engine", p.name));
  }

  void pool_sizes(const pool& p, const std::string& at) {
    const auto most = p.engine == engine_kind::llama ? sequences_max : simulated_sequences_max;
    if (p.slots + p.cached_prefixes > most)
      fail(where(at + (is_set(at + ".slots") ? ".slots" : ".cached_prefixes"), p.where),
           fmt::format("slots ({}) and cached_prefixes ({}) are together more than the {} "
                       "sequences of a {} engine",
                       p.slots, p.cached_prefixes, most,
                       p.engine == engine_kind::llama ? "llama" : "simulated"));
    if (p.step_tokens < p.slots)
      fail(where(at + ".step_tokens", p.where),
           fmt::format("step_tokens ({}) is less than slots ({}): each running request needs a "
                       "token of the step",
                       p.step_tokens, p.slots));
    if (p.kv_tokens < p.slots)
      fail(
          where(at + ".kv_tokens", p.where),
          fmt::format(
              "kv_tokens ({}) is less than slots ({}): not even one token for each running request",
              p.kv_tokens, p.slots));
    const auto* m = c_.find_model(p.model);
    if (m != nullptr && m->context_tokens > p.kv_tokens)
      fail(where(at + ".kv_tokens", p.where),
           fmt::format("kv_tokens ({}) is less than the context of model \"{}\" ({}): a request "
                       "that long would never fit",
                       p.kv_tokens, m->name, m->context_tokens));
  }

  void pool_cpus(const pool& p, const std::string& at) {
    std::set<std::uint32_t> seen;
    for (const auto& text : p.cpus) {
      const auto range = parse_cpus(text);
      for (auto cpu = range->first; cpu <= range->second; ++cpu)
        if (!seen.insert(cpu).second)
          return fail(where(at + ".cpus", p.where),
                      fmt::format("CPU {} stands twice in the cpus of pool \"{}\"", cpu, p.name));
    }
    if (seen.size() % p.engines_per_host != 0)
      fail(where(at + ".cpus", p.where),
           fmt::format("{} CPUs cannot be dealt out evenly to {} engines_per_host of pool \"{}\"",
                       seen.size(), p.engines_per_host, p.name));
  }

  /// A setting that changes nothing is a mistake; its default, written out, is none.
  void no_effect(bool ineffective, const std::string& key, const location& record,
                 const char* why) {
    if (!ineffective) return;
    const auto name = key.substr(key.rfind('.') + 1);
    fail(where(key, record), fmt::format("`{}` has no effect: {}", name, why));
  }

  void pool_effects(const pool& p, const std::string& at) {
    static const pool default_pool;
    if (p.engine == engine_kind::llama) {
      if (const auto i = c_.origins.find(at + ".simulation"); i != c_.origins.end())
        fail(i->second,
             fmt::format("[pool.simulation] has no effect: pool \"{}\" has engine = \"llama\"",
                         p.name));
      const auto* m = c_.find_model(p.model);
      if (m != nullptr && m->path_written.empty())
        fail(where(at + ".model", p.where),
             fmt::format("model \"{}\" has no `path`, which a pool with engine = \"llama\" needs",
                         m->name));
    } else {
      no_effect(p.threads != default_pool.threads, at + ".threads", p.where,
                "its pool is simulated");
      no_effect(p.gpu_layers != default_pool.gpu_layers, at + ".gpu_layers", p.where,
                "its pool is simulated");
      const auto probability = at + ".simulation.fault_probability_per_step";
      no_effect(p.sim.fault.empty() && p.sim.fault_probability_per_step > 0, probability, p.where,
                "there is no `fault`");
      no_effect(!p.sim.fault.empty() && p.sim.fault_probability_per_step == 0 &&
                    !is_set(probability),
                at + ".simulation.fault", p.where, "there is no `fault_probability_per_step`");
      no_effect(p.sim.fault.empty() && p.sim.seed != default_pool.sim.seed, at + ".simulation.seed",
                p.where, "there is no `fault`");
    }
    no_effect(p.costs_of_other_hardware && p.costs_written.empty(), at + ".costs_of_other_hardware",
              p.where, "there are no `costs`");
    no_effect(!p.prefix_reuse && p.cached_prefixes != default_pool.cached_prefixes,
              at + ".cached_prefixes", p.where, "prefix_reuse is false");
  }

  // -- models and hosts -----------------------------------------------------------

  void models() {
    for (std::size_t i = 0; i < c_.models.size(); ++i) {
      const auto& m = c_.models[i];
      const pool* prefill = nullptr;
      const pool* decode = nullptr;
      bool served = false;
      for (const auto& p : c_.pools) {
        if (p.model != m.name) continue;
        served = true;
        if (p.role == pool_role::prefill && prefill == nullptr) prefill = &p;
        if (p.role == pool_role::decode && decode == nullptr) decode = &p;
      }
      if (prefill != nullptr && decode == nullptr)
        fail(prefill->where, fmt::format("pool \"{}\" has role \"prefill\", but model \"{}\" has "
                                         "no pool with role \"decode\" to hand over to",
                                         prefill->name, m.name));
      if (decode != nullptr && prefill == nullptr)
        fail(decode->where, fmt::format("pool \"{}\" has role \"decode\", but model \"{}\" has no "
                                        "pool with role \"prefill\" to feed it",
                                        decode->name, m.name));
      if (!served && !m.name.empty())
        fail(m.where, fmt::format("model \"{}\" is served by no pool", m.name));
      no_effect(m.path_written.empty() && !m.chat_template.empty(),
                path("model", i) + ".chat_template", m.where, "the model has no `path`");
      no_effect(m.path_written.empty() && !m.chat_template_file_written.empty(),
                path("model", i) + ".chat_template_file", m.where, "the model has no `path`");
      if (!m.chat_template.empty() && !m.chat_template_file_written.empty())
        fail(where(path("model", i) + ".chat_template_file", m.where),
             "`chat_template` and `chat_template_file` contradict each other; only one can hold");
    }
  }

  void hosts() {
    std::map<std::string, std::uint64_t> engines_of;
    for (const auto& p : c_.pools)
      for (const auto& name : std::set<std::string>(p.hosts.begin(), p.hosts.end()))
        engines_of[name] += p.engines_per_host;
    for (std::size_t i = 0; i < c_.hosts.size(); ++i) {
      const auto& h = c_.hosts[i];
      const auto here = where(path("host", i) + ".address", h.where);
      if (is_wildcard(h.address))
        fail(here, fmt::format("peers cannot connect to {}: a host needs an address of its own",
                               h.address));
      const auto admin = path("host", i) + ".admin_address";
      static const host default_host;
      no_effect(h.admin_port == 0 && h.admin_address != default_host.admin_address, admin, h.where,
                "there is no `admin_port`");
      if (h.name.empty()) continue;
      const auto engines = engines_of[h.name];
      if (engines > engines_per_host_max)
        fail(h.where, fmt::format("host \"{}\" would run {} engines; at most {} are supported",
                                  h.name, engines, engines_per_host_max));
      const auto on_it = [&](const auto& x) { return x.host == h.name; };
      if (engines == 0 && std::none_of(c_.gateways.begin(), c_.gateways.end(), on_it) &&
          std::none_of(c_.routers.begin(), c_.routers.end(), on_it) &&
          !(c_.control && on_it(*c_.control)))
        fail(h.where, fmt::format("host \"{}\" runs nothing: no pool, gateway, router or [control] "
                                  "names it",
                                  h.name));
    }
  }

  // -- who trusts whom ----------------------------------------------------------------

  void trust() {
    const bool remote_consoles = std::any_of(c_.hosts.begin(), c_.hosts.end(), [](const host& h) {
      return h.admin_port != 0 && !is_loopback(h.admin_address);
    });
    no_effect(c_.section.insecure_links && c_.hosts.size() == 1 && !remote_consoles,
              "cluster.insecure_links", file(),
              "there is one host only, and no console beyond loopback");
  }

  void gateway_certificate(const gateway& g, const std::string& at) {
    if (g.certificate_written.empty() == g.key_written.empty()) return;
    const bool has_key = !g.key_written.empty();
    fail(where(at + (has_key ? ".key" : ".certificate"), g.where),
         fmt::format("the gateway has a `{}` but no `{}`; HTTPS needs both",
                     has_key ? "key" : "certificate", has_key ? "certificate" : "key"));
  }

  void services() {
    for (std::size_t i = 0; i < c_.gateways.size(); ++i)
      refer("host", c_.gateways[i].host, c_.hosts,
            where(path("gateway", i) + ".host", c_.gateways[i].where));
    std::map<std::string, std::uint32_t> lines;
    for (std::size_t i = 0; i < c_.gateways.size(); ++i) {
      const auto& g = c_.gateways[i];
      const auto [first, only] = lines.try_emplace(g.host, g.where.line);
      if (!only)
        fail(where(path("gateway", i) + ".host", g.where),
             fmt::format("host \"{}\" has a gateway already, in line {}; a host has one", g.host,
                         first->second));
    }
    for (std::size_t i = 0; i < c_.gateways.size(); ++i)
      gateway_certificate(c_.gateways[i], path("gateway", i));
    for (std::size_t i = 0; i < c_.routers.size(); ++i)
      refer("host", c_.routers[i].host, c_.hosts,
            where(path("router", i) + ".host", c_.routers[i].where));
  }

  void control() {
    if (!c_.control) return;
    const auto& x = *c_.control;
    refer("host", x.host, c_.hosts, where("control.host", x.where));
    if (x.state_written.empty() && is_set("control.state"))
      fail(where("control.state", x.where),
           "`state` is empty; name a file on the control host, which is made if it is not there");
    if (c_.routers.size() == 1)
      fail(x.where, "[control] has no effect: there is one [[router]] only, which has all keys");
  }

  // -- tenants ------------------------------------------------------------------------

  void tenants() {
    std::map<std::string, std::size_t> owners;  // of keys, by hash
    operator_keys(owners);
    for (std::size_t i = 0; i < c_.tenants.size(); ++i) {
      const auto& t = c_.tenants[i];
      const auto at = path("tenant", i);
      tenant_keys(t, i, owners);
      tenant_models(t, where(at + ".models", t.where));
      for (std::size_t k = 0; k < t.limits.size(); ++k)
        tenant_limits(t, k, fmt::format("{}.limit[{}]", at, k));
    }
  }

  void operator_keys(std::map<std::string, std::size_t>& owners) {
    const auto& keys = c_.section.operator_keys;
    const auto at = where("cluster.operator_keys", file());
    no_effect(!keys.empty() && c_.tenants.empty(), "cluster.operator_keys", file(),
              "there is no [[tenant]], and everybody is told all");
    if (keys.size() > keys_per_tenant_max)
      return fail(
          at, fmt::format("{} keys; at most {} are supported", keys.size(), keys_per_tenant_max));
    for (const auto& key : keys)
      if (!owners.try_emplace(lower(key), c_.tenants.size()).second)
        fail(at, fmt::format("the key with hash {}... stands twice",
                             lower(key).substr(0, shown_hash_digits)));
  }

  static std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  }

  void tenant_keys(const tenant& t, std::size_t i, std::map<std::string, std::size_t>& owners) {
    const auto at = where(path("tenant", i) + ".keys", t.where);
    if (t.keys.size() > keys_per_tenant_max)
      return fail(
          at, fmt::format("{} keys; a tenant has at most {}", t.keys.size(), keys_per_tenant_max));
    for (const auto& written : t.keys) {
      const auto hash = lower(written);
      const auto [owner, only] = owners.try_emplace(hash, i);
      if (only) continue;
      const auto shown = hash.substr(0, shown_hash_digits);
      if (owner->second == i) {
        fail(at, fmt::format("the key with hash {}... stands twice", shown));
        continue;
      }
      const bool of_operator = owner->second == c_.tenants.size();
      fail(at, fmt::format("the key with hash {}... is also {}", shown,
                           of_operator ? "among `operator_keys`"
                                       : fmt::format("one of tenant \"{}\", at {}",
                                                     c_.tenants[owner->second].name,
                                                     to_string(c_.tenants[owner->second].where))));
    }
  }

  void tenant_models(const tenant& t, const location& at) {
    std::set<std::string> seen;
    for (const auto& m : t.models) {
      refer("model", m, c_.models, at);
      if (!seen.insert(m).second) {
        fail(at, fmt::format("model \"{}\" stands twice", m));
      } else if (std::none_of(t.limits.begin(), t.limits.end(),
                              [&](const tenant_limit& l) { return l.model == m; })) {
        fail(at, fmt::format("tenant \"{}\" may use model \"{}\", but has no [[tenant.limit]] "
                             "for it",
                             t.name, m));
      }
    }
  }

  void tenant_limits(const tenant& t, std::size_t k, const std::string& at) {
    const auto& l = t.limits[k];
    const auto here = where(at + ".model", l.where);
    refer("model", l.model, c_.models, here);
    for (std::size_t other = 0; other < k; ++other)
      if (!l.model.empty() && t.limits[other].model == l.model)
        fail(here, fmt::format("tenant \"{}\" has two [[tenant.limit]]s for model \"{}\"; the "
                               "other is at {}",
                               t.name, l.model, to_string(t.limits[other].where)));
    no_effect(!l.model.empty() && !t.models.empty() &&
                  std::find(t.models.begin(), t.models.end(), l.model) == t.models.end(),
              at + ".model", l.where, "it is not among the tenant's `models`");
    // One that is set and yet 0 could not be read, and was complained about.
    const bool guaranteed = l.guaranteed_mu_per_minute > 0 ||
                            is_set(at + ".guaranteed_mu_per_minute");
    if (!guaranteed && l.best_effort_weight == 0 && !is_set(at + ".best_effort_weight"))
      fail(l.where, fmt::format("tenant \"{}\" may use nothing of model \"{}\": set "
                                "`guaranteed_mu_per_minute`, `best_effort_weight`, or both",
                                t.name, l.model));
    const auto* why = "there is no `guaranteed_mu_per_minute`";
    no_effect(!guaranteed && l.burst_mu > 0, at + ".burst_mu", l.where, why);
    no_effect(!guaranteed && l.isolated_mu_per_minute > 0, at + ".isolated_mu_per_minute", l.where,
              why);
    if (l.guaranteed_mu_per_minute == 0) return;
    no_effect(c_.gateways.size() == 1 && l.isolated_mu_per_minute > 0,
              at + ".isolated_mu_per_minute", l.where, "there is one gateway only");
    if (l.isolated_mu_per_minute * static_cast<double>(c_.gateways.size()) >
        l.guaranteed_mu_per_minute)
      fail(where(at + ".isolated_mu_per_minute", l.where),
           fmt::format("{:g} MU per minute for each of {} gateways that are cut off are more than "
                       "the {:g} that are guaranteed over all of them",
                       l.isolated_mu_per_minute, c_.gateways.size(), l.guaranteed_mu_per_minute));
  }

  // -- ports ------------------------------------------------------------------------

  struct listener {
    std::string what;
    std::string machine;
    std::string address;
    std::uint16_t port;
    location at;
  };

  /// Two hosts on loopback are one machine for certain; so are two that claim one address.
  static std::string machine_of(const host& h) {
    return is_loopback(h.address) ? "loopback" : h.address;
  }

  void listeners() {
    std::vector<listener> all;
    std::map<std::string, std::string> machines;
    for (std::size_t i = 0; i < c_.hosts.size(); ++i) {
      const auto& h = c_.hosts[i];
      machines.emplace(h.name, machine_of(h));
      all.push_back({fmt::format("the admin port of host \"{}\"", h.name), machine_of(h),
                     h.admin_address, h.admin_port,
                     where(path("host", i) + ".admin_port", h.where)});
      all.push_back({fmt::format("the links of host \"{}\"", h.name), machine_of(h), h.address,
                     h.port, where(path("host", i) + ".port", h.where)});
    }
    for (std::size_t i = 0; i < c_.gateways.size(); ++i) {
      const auto& g = c_.gateways[i];
      const auto at = machines.find(g.host);  // of a host that isn't there: a machine of its own
      all.push_back({fmt::format("the gateway of host \"{}\"", g.host),
                     at == machines.end() ? "host " + g.host : at->second, g.address, g.port,
                     where(path("gateway", i) + ".port", g.where)});
    }
    // Those that may be in each other's way, in the file's order.
    std::map<std::pair<std::string, std::uint16_t>, std::vector<const listener*>> taken;
    for (const auto& a : all) {
      if (a.port == 0 || a.address.empty()) continue;
      auto& others = taken[{a.machine, a.port}];
      const auto b = std::find_if(others.begin(), others.end(), [&](const listener* x) {
        return x->address == a.address || is_wildcard(x->address) || is_wildcard(a.address);
      });
      if (b != others.end())
        fail(a.at, fmt::format("port {} of {} is taken by {} at {}", a.port, a.address, (*b)->what,
                               to_string((*b)->at)));
      others.push_back(&a);
    }
  }

  /// Engines of role `both` hand streams over to others of their model when they are drained.
  bool may_move() const {
    std::map<std::string, std::size_t> engines;
    for (const auto& p : c_.pools)
      if (p.role == pool_role::both) engines[p.model] += p.hosts.size() * p.engines_per_host;
    return std::any_of(engines.begin(), engines.end(), [](const auto& m) { return m.second > 1; });
  }

  // -- transfers and times --------------------------------------------------------------

  void transfers() {
    const bool split = std::any_of(c_.pools.begin(), c_.pools.end(),
                                   [](const pool& p) { return p.role != pool_role::both; });
    if (split && c_.transfer.kind == "host")
      fail(where("transfer.kind", file()), "kind = \"host\" carries KV within one process only, "
                                           "and engines are processes of their own; use \"ucx\"");
    if (c_.transfer.buffer_bytes < c_.transfer.piece_bytes_max)
      fail(where(is_set("transfer.piece_bytes_max") ? "transfer.piece_bytes_max"
                                                    : "transfer.buffer_bytes",
                 file()),
           fmt::format("piece_bytes_max ({}) does not fit into buffer_bytes ({})",
                       format_bytes(c_.transfer.piece_bytes_max),
                       format_bytes(c_.transfer.buffer_bytes)));
    if (split || c_.pools.empty() || may_move()) return;
    static const struct transfer default_transfer;
    const auto& t = c_.transfer;
    const auto* why = "no pool has role \"prefill\" or \"decode\", and no model has two engines";
    no_effect(t.kind != default_transfer.kind, "transfer.kind", file(), why);
    no_effect(t.buffer_bytes != default_transfer.buffer_bytes, "transfer.buffer_bytes", file(),
              why);
    no_effect(t.piece_bytes_max != default_transfer.piece_bytes_max, "transfer.piece_bytes_max",
              file(), why);
    no_effect(t.tls != default_transfer.tls, "transfer.tls", file(), why);
    static const router default_router;
    for (std::size_t i = 0; i < c_.routers.size(); ++i)
      no_effect(c_.routers[i].decode_prefills_tokens_max !=
                    default_router.decode_prefills_tokens_max,
                path("router", i) + ".decode_prefills_tokens_max", c_.routers[i].where, why);
  }

  void less(const char* smaller, milliseconds a, const char* larger, milliseconds b,
            const char* why) {
    if (a < b) return;
    const auto key = fmt::format("health.{}", smaller);
    fail(where(is_set(key) ? key : fmt::format("health.{}", larger), file()),
         fmt::format("{} ({}) must be less than {} ({}): {}", smaller, format_duration(a), larger,
                     format_duration(b), why));
  }

  void times() {
    const auto& h = c_.health;
    less("heartbeat_interval", h.heartbeat_interval, "heartbeat_timeout", h.heartbeat_timeout,
         "otherwise every peer is taken for lost between two pings");
    less("lease_renewal", h.lease_renewal, "lease", h.lease,
         "otherwise every job lapses before it is renewed");
    if (h.restart_backoff_min > h.restart_backoff_max)
      fail(where(is_set("health.restart_backoff_min") ? "health.restart_backoff_min"
                                                      : "health.restart_backoff_max",
                 file()),
           fmt::format("restart_backoff_min ({}) is more than restart_backoff_max ({})",
                       format_duration(h.restart_backoff_min),
                       format_duration(h.restart_backoff_max)));
    if (c_.limits.held_prompt_bytes_max < c_.limits.prompt_bytes_max)
      fail(where(is_set("limits.held_prompt_bytes_max") ? "limits.held_prompt_bytes_max"
                                                        : "limits.prompt_bytes_max",
                 file()),
           fmt::format("held_prompt_bytes_max ({}) is less than prompt_bytes_max ({}): the longest "
                       "prompt could never be held",
                       format_bytes(c_.limits.held_prompt_bytes_max),
                       format_bytes(c_.limits.prompt_bytes_max)));
  }

  const cluster& c_;
  std::vector<problem> problems_;
};

}  // namespace

std::vector<problem> check(const cluster& c) { return checker{c}.run(); }

std::vector<problem> warnings(const cluster& c) {
  std::vector<problem> out;
  for (const auto& g : c.gateways) {
    if (is_loopback(g.address)) continue;
    if (c.tenants.empty())
      out.push_back({g.where, fmt::format("note: there is no [[tenant]]: whoever reaches the "
                                          "gateway at {} may use all models, without a key",
                                          g.address)});
    else if (g.certificate_written.empty())
      out.push_back({g.where, fmt::format("note: the gateway at {} has no certificate: API keys "
                                          "come to it unencrypted, unless a proxy before it speaks "
                                          "TLS",
                                          g.address)});
  }
  if (c.gateways.size() == 2 && !c.tenants.empty()) {
    const auto& first = std::min(c.gateways[0].host, c.gateways[1].host);
    out.push_back({c.gateways[1].where,
                   fmt::format("note: of two gateways neither is more than half: while '{}', the "
                               "first by name, is lost, the other gives each tenant its "
                               "`isolated_mu_per_minute` only; with three, any one can be lost",
                               first)});
  }
  if (!c.section.insecure_links) return out;
  const auto at = c.origins.find("cluster.insecure_links");
  out.push_back(
      {at == c.origins.end() ? location{c.file, 0, 0} : at->second,
       "warning: insecure_links = true: links between hosts, and consoles beyond "
       "loopback, are neither encrypted nor proved; whoever reaches their ports can join"});
  return out;
}

bool links_use_tls(const cluster& c) { return c.hosts.size() > 1 && !c.section.insecure_links; }

bool console_uses_tls(const cluster& c, const host& h) {
  return h.admin_port != 0 && !is_loopback(h.admin_address) && !c.section.insecure_links;
}

}  // namespace troupe::config
