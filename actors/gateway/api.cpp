#include "actors/gateway/api.hpp"

#include "actors/gateway/openai/encode.hpp"
#include "actors/gateway/openai/json_output.hpp"
#include "actors/gateway/sinks.hpp"

#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <optional>
#include <utility>

namespace troupe::gateway {

namespace bhttp = boost::beast::http;

namespace {

using openai::make_error;

constexpr std::size_t request_id_bytes_max = 128;
constexpr std::size_t session_bytes_max = 256;
/// What a client should wait while no engine of a model is ready.
constexpr std::chrono::milliseconds not_ready_retry_after{1'000};

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Such an id can stand in a log's field and in a URL as it is.
bool plain(std::string_view s) {
  return std::all_of(s.begin(), s.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '\\'; });
}

/// Of a request's target, in origin form or (as to a proxy) absolute.
std::string_view path_of(std::string_view target) {
  if (const auto scheme = target.find("://"); !target.starts_with('/') && scheme != target.npos) {
    const auto path = target.find('/', scheme + 3);
    target = path == target.npos ? "/" : target.substr(path);
  }
  return target.substr(0, target.find('?'));
}

/// A name in a path may hold a slash; some clients send it as %2F. What is no escape stays.
std::string unescaped(std::string_view path) {
  std::string name{path};
  for (std::size_t at = 0; (at = name.find('%', at)) != std::string::npos; ++at) {
    unsigned value = 0;
    const auto* digits = name.data() + at + 1;
    if (at + 3 > name.size()) break;
    const auto [stop, ec] = std::from_chars(digits, digits + 2, value, 16);
    if (ec != std::errc{} || stop != digits + 2) continue;
    name.replace(at, 3, 1, static_cast<char>(value));
  }
  return name;
}

std::string_view header(const http::request& r, std::string_view name) {
  const auto it = r.find(boost::beast::string_view(name.data(), name.size()));
  if (it == r.end()) return {};
  return {it->value().data(), it->value().size()};
}

std::string hex(request::request_id id) { return fmt::format("{:016x}{:016x}", id.high, id.low); }

}  // namespace

struct api::call {
  http::request request;
  std::shared_ptr<http::responder> to;
  request::request_id id;
  std::string external_id = {};
  std::string route = "other";
  std::string_view rest = {};  ///< of the path, behind the route's prefix
  /// The generation of keys that it goes by, and whose its key is; null: there are no tenants.
  std::shared_ptr<const admission::key_ring> keys = {};
  const admission::key_owner* who = nullptr;
  http::header_list headers() const { return {{"X-Request-Id", external_id}}; }
};

struct api::route {
  std::string_view path;
  bool prefix;  ///< more of the path may follow
  bool post;    ///< else GET and HEAD
  access to;    ///< where there are tenants
  void (api::*answer)(call&);
};

api::api(const gateway_options& options, std::shared_ptr<request::desk> desk,
         std::shared_ptr<metrics> counts)
    : limits_(options.limits), models_(options.models), fingerprint_(options.fingerprint),
      created_(unix_seconds()), desk_(std::move(desk)), counts_(std::move(counts)),
      keys_(options.keys) {
  parse_options_.prompt_bytes_max = limits_.prompt_bytes_max;
  parse_options_.choices_max = limits_.choices_max;
  parse_options_.prompts_max = limits_.prompts_max;
  parse_options_.chain_key = options.chain_key;
  parse_options_.random = options.random;
}

request::request_id api::new_id() { return {parse_options_.random(), parse_options_.random()}; }

void api::handle(http::request&& r, const std::shared_ptr<http::responder>& to) {
  static constexpr std::array routes = {
      route{"/v1/chat/completions", false, true, access::tenants, &api::complete},
      route{"/v1/completions", false, true, access::tenants, &api::complete},
      route{"/v1/models", false, false, access::tenants, &api::models},
      route{"/v1/models/", true, false, access::tenants, &api::model},
      route{"/healthz", false, false, access::anybody, &api::health},
      route{"/readyz", false, false, access::anybody, &api::ready},
      route{"/debug/requests/", true, false, access::both, &api::debug_request},
      route{"/debug/workers", false, false, access::operators, &api::debug_workers},
      route{"/metrics", false, false, access::operators, &api::show_metrics},
  };
  call c{.request = std::move(r), .to = to, .id = new_id()};
  try {
    c.external_id = "req_" + hex(c.id);
    const auto given = header(c.request, "X-Request-Id");
    if (given.size() > request_id_bytes_max || !plain(given)) {
      fail(c,
           make_error(400, "invalid_header",
                      fmt::format("X-Request-Id must have at most {} printable ASCII characters, "
                                  "without spaces, quotes and backslashes.",
                                  request_id_bytes_max),
                      "X-Request-Id"));
      return;
    }
    if (!given.empty()) c.external_id = given;
    const auto path = path_of({c.request.target().data(), c.request.target().size()});
    const auto found = std::find_if(routes.begin(), routes.end(), [&](const route& candidate) {
      return candidate.prefix
                 ? path.starts_with(candidate.path) && path.size() > candidate.path.size()
                 : path == candidate.path;
    });
    if (found == routes.end()) {
      fail(c, make_error(404, "unknown_url",
                         fmt::format("Unknown request URL: {} {}.",
                                     std::string(c.request.method_string()), path.substr(0, 200))));
      return;
    }
    c.route = found->path;
    c.rest = path.substr(found->path.size());
    const auto* allowed = found->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    const auto method = c.request.method();
    if (method == bhttp::verb::options) {
      http::reply none{.status = 204, .content_type = {}};
      none.headers.emplace_back("Allow", allowed);
      reply(c, std::move(none));
    } else if (found->post ? method == bhttp::verb::post
                           : method == bhttp::verb::get || method == bhttp::verb::head) {
      if (check_key(c, found->to)) (this->*found->answer)(c);
    } else {
      auto r405 = http::error_reply(make_error(
          405, "method_not_allowed", fmt::format("{} allows {} only.", found->path, allowed)));
      r405.headers.emplace_back("Allow", allowed);
      reply(c, std::move(r405));
    }
  } catch (const std::exception& e) {
    fail(c, make_error(500, "internal_error", "The gateway failed to handle this request."));
    counts_->lost("handler_threw");
  }
}

void api::reply(call& c, http::reply r) {
  counts_->answered(c.route, r.status);
  for (auto& h : c.headers()) r.headers.push_back(std::move(h));
  c.to->send(std::move(r));
}

void api::fail(call& c, openai::api_error e) { reply(c, http::error_reply(e)); }

// -- who asks ------------------------------------------------------------------------------------

namespace {

/// Of `Authorization: Bearer KEY`; empty: there is none.
std::string_view bearer_of(std::string_view authorization) {
  constexpr std::string_view scheme = "Bearer ";
  const auto given = authorization.substr(0, scheme.size());
  if (!boost::beast::iequals(boost::beast::string_view(given.data(), given.size()),
                             boost::beast::string_view(scheme.data(), scheme.size())))
    return {};
  const auto key = authorization.find_first_not_of(' ', scheme.size());
  return key == authorization.npos ? std::string_view{} : authorization.substr(key);
}

}  // namespace

bool api::check_key(call& c, access to) {
  if (keys_) c.keys = keys_->get();
  if (!c.keys || to == access::anybody) return true;
  const auto key = bearer_of(header(c.request, "Authorization"));
  c.who = c.keys->find(key);
  if (c.who == nullptr) {
    auto r = http::error_reply(make_error(
        401, "invalid_api_key",
        key.empty() ? "There is no API key: send it in the header `Authorization: Bearer KEY`."
                    : "The API key is not known here."));
    r.headers.emplace_back("WWW-Authenticate", "Bearer");
    reply(c, std::move(r));
    return false;
  }
  const bool is_operator = c.who->tenant.empty();
  if (to == access::tenants && is_operator) {
    fail(c, make_error(403, "operator_key",
                       "This is an operator's key: it reads /metrics and /debug, and uses no "
                       "models."));
    return false;
  }
  if (to == access::operators && !is_operator) {
    fail(c, make_error(403, "operators_only",
                       "Only an operator's key (`operator_keys` of the cluster file) reads this."));
    return false;
  }
  return true;
}

// -- completions ----------------------------------------------------------------------------------

bool api::check_content(call& c) {
  const auto type = header(c.request, "Content-Type");
  const auto media = type.substr(0, type.find(';'));
  // A page in a browser may send text, forms, or bytes without a type to any address, but not JSON.
  if (!boost::beast::iequals(boost::beast::string_view(media.data(), media.size()),
                             "application/json")) {
    fail(c, make_error(415, "unsupported_media_type", "Content-Type must be application/json.",
                       "Content-Type"));
    return false;
  }
  if (const auto encoding = header(c.request, "Content-Encoding");
      !encoding.empty() && encoding != "identity") {
    fail(c, make_error(415, "unsupported_media_type", "Content-Encoding is not supported.",
                       "Content-Encoding"));
    return false;
  }
  return true;
}

std::vector<request::desk::model_state> api::known_models() const {
  auto states = desk_->models();
  for (const auto& name : models_)
    if (std::none_of(states.begin(), states.end(), [&](const auto& s) { return s.name == name; }))
      states.push_back({name, false, "no engine has reported yet"});
  return states;
}

bool api::check_model(call& c, const std::string& name) {
  const auto states = known_models();
  const auto found = std::find_if(states.begin(), states.end(),
                                  [&](const auto& s) { return s.name == name; });
  if (found == states.end()) {
    fail(c,
         make_error(404, "model_not_found",
                    fmt::format("The model '{}' does not exist.", name.substr(0, 100)), "model"));
    return false;
  }
  if (c.who != nullptr && !c.who->may_use(name)) {
    fail(c, make_error(403, "model_not_allowed",
                       fmt::format("Tenant '{}' may not use the model '{}'.", c.who->tenant, name),
                       "model"));
    return false;
  }
  if (!found->ready) {
    auto e = make_error(503, "model_not_ready",
                        fmt::format("The model '{}' is not ready: {}.", name, found->reason),
                        "model");
    e.retry_after = not_ready_retry_after;
    fail(c, std::move(e));
    return false;
  }
  return true;
}

bool api::read_timeout(call& c, std::chrono::milliseconds& out) {
  out = limits_.request_timeout;
  const auto given = header(c.request, "X-Request-Timeout-Ms");
  if (given.empty()) return true;
  std::uint64_t ms = 0;
  const auto* end = given.data() + given.size();
  const auto [stop, ec] = std::from_chars(given.data(), end, ms);
  if (ec != std::errc{} || stop != end || ms == 0) {
    fail(c, make_error(400, "invalid_header",
                       "X-Request-Timeout-Ms must be a positive number of milliseconds.",
                       "X-Request-Timeout-Ms"));
    return false;
  }
  out = std::min(out, std::chrono::milliseconds(
                          std::min<std::uint64_t>(ms, static_cast<std::uint64_t>(out.count()))));
  return true;
}

void api::complete(call& c) {
  if (closing_) {
    fail(c, make_error(503, "shutting_down", "The server is shutting down; try another one."));
    return;
  }
  std::chrono::milliseconds timeout{0};
  if (!check_content(c) || !read_timeout(c, timeout)) return;
  const bool chat = c.route == "/v1/chat/completions";
  const auto& body = c.request.body();
  std::optional<openai::parse_options> own;
  if (c.who != nullptr) own.emplace(parse_options_).chain_key = c.who->chain_key;
  const auto& how = own ? *own : parse_options_;
  auto parsed = chat ? openai::parse_chat(body, how) : openai::parse_completion(body, how);
  if (auto* e = std::get_if<openai::api_error>(&parsed)) {
    fail(c, std::move(*e));
    return;
  }
  auto& p = std::get<openai::parsed_request>(parsed);
  if (!check_model(c, p.model)) return;
  auto session = header(c.request, "X-Session-Id");
  if (session.size() > session_bytes_max) {
    fail(c,
         make_error(400, "invalid_header",
                    fmt::format("X-Session-Id must have at most {} characters.", session_bytes_max),
                    "X-Session-Id"));
    return;
  }

  answer_options answer;
  answer.who = {.id = (chat ? "chatcmpl-" : "cmpl-") + hex(c.id),
                .model = p.model,
                .fingerprint = fingerprint_,
                .created = unix_seconds(),
                .chat = chat};
  answer.headers = c.headers();
  answer.route = c.route;
  answer.choices = p.choices;
  answer.prompts = p.prompts.size();
  answer.include_usage = p.include_usage;
  answer.logprobs = p.logprobs;

  request::submission s;
  s.id = c.id;
  s.external_id = c.external_id;
  if (c.who != nullptr) {
    s.tenant = c.who->tenant;
    s.prefix_scope = c.who->prefix_scope;
  }
  s.model = p.model;
  s.prompts = std::move(p.prompts);
  s.choices = p.choices;
  s.max_tokens = p.max_tokens;
  s.timeout = timeout;
  s.session = session.empty() ? p.user : std::string(session);
  const auto client = p.stream ? make_stream_sink(std::move(answer), c.to, counts_)
                               : make_whole_sink(std::move(answer), c.to, counts_);
  s.client = client;
  // Before it is submitted: the client may be gone at any time from here on.
  c.to->on_gone(
      [desk = desk_, id = c.id](std::string reason) { desk->cancel(id, std::move(reason)); });
  if (auto submitted = desk_->submit(std::move(s)); !submitted) {
    c.to->on_gone(nullptr);
    const auto& why = submitted.error();
    client->on_failed({.http_status = 503,
                       .code = why.code,
                       .message = why.message,
                       .parameter = why.parameter,
                       .retry_after = not_ready_retry_after});
  }
}

// -- all else -------------------------------------------------------------------------------------

/// Those that the caller may use.
std::vector<request::desk::model_state> api::models_for(const call& c) const {
  auto states = known_models();
  if (c.who != nullptr)
    std::erase_if(states, [&](const auto& s) { return !c.who->may_use(s.name); });
  return states;
}

void api::models(call& c) {
  std::vector<openai::listed_model> names;
  for (auto& s : models_for(c)) names.push_back({std::move(s.name)});
  reply(c, {.body = openai::encode_models(names, created_)});
}

void api::model(call& c) {
  const auto states = models_for(c);
  const auto name = unescaped(c.rest);
  if (std::none_of(states.begin(), states.end(), [&](const auto& s) { return s.name == name; })) {
    fail(c,
         make_error(404, "model_not_found",
                    fmt::format("The model '{}' does not exist.", c.rest.substr(0, 100)), "model"));
    return;
  }
  reply(c, {.body = openai::encode_model({name}, created_)});
}

void api::health(call& c) { reply(c, {.body = R"({"status":"ok"})"}); }

void api::ready(call& c) {
  const auto states = known_models();
  const bool any = std::any_of(states.begin(), states.end(), [](const auto& s) { return s.ready; });
  const bool ready = any && !draining_;
  http::reply r{.status = ready ? 200U : 503U};
  openai::string_output out{r.body};
  openai::json_writer w{out};
  w.StartObject();
  w.Key("ready");
  w.Bool(ready);
  w.Key("draining");
  w.Bool(draining_);
  w.Key("models");
  w.StartArray();
  for (const auto& s : states) {
    w.StartObject();
    w.Key("name");
    openai::write(w, s.name);
    w.Key("ready");
    w.Bool(s.ready);
    w.Key("failed");
    w.Bool(s.failed);
    if (!s.reason.empty()) {
      w.Key("reason");
      openai::write(w, s.reason);
    }
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
  reply(c, std::move(r));
}

void api::debug_request(call& c) {
  const bool whosever = c.who == nullptr || c.who->tenant.empty();
  auto json = desk_->timeline_json(unescaped(c.rest),
                                   whosever ? std::nullopt : std::optional{c.who->tenant});
  if (json.empty())
    fail(c, make_error(404, "request_not_found", "No recent request has this X-Request-Id."));
  else
    reply(c, {.body = std::move(json)});
}

void api::debug_workers(call& c) { reply(c, {.body = desk_->workers_json()}); }

void api::show_metrics(call& c) {
  reply(c, {.body = counts_->text(), .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace troupe::gateway
