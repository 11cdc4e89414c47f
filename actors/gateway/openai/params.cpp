#include "actors/gateway/openai/params.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <unordered_set>

namespace troupe::gateway::openai {

namespace {

constexpr std::int64_t tokens_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

using reader = bool (*)(params& p, checker& c, const path& at, json v);

struct known_parameter {
  std::string_view name;
  std::uint8_t endpoints;
  reader read;  // null: known, but not supported
};

bool read_stop(params& p, checker& c, const path& at, json v) {
  auto one = [&](const path& where, json value) {
    std::string_view s;
    if (!c.text(where, value, s)) return false;
    if (s.empty() || s.size() > stop_bytes_max)
      return c.refuse(
          where, "invalid_value",
          fmt::format("'{}' must have from 1 to {} bytes.", where.text(), stop_bytes_max));
    p.stop.push_back(s);
    return true;
  };
  if (v.is_string()) return one(at, v);
  simdjson::dom::array list;
  if (v.get_array().get(list) != simdjson::SUCCESS)
    return c.wrong_type(at, "a string or an array of strings", v);
  if (list.size() == 0 || list.size() > stop_strings_max)
    return c.refuse(at, "invalid_value",
                    fmt::format("'stop' must have from 1 to {} strings.", stop_strings_max));
  std::size_t i = 0;
  for (json value : list)
    if (!one(path{at, i++}, value)) return false;
  return true;
}

bool read_logit_bias(params& p, checker& c, const path& at, json v) {
  simdjson::dom::object pairs;
  if (!c.object(at, v, pairs)) return false;
  for (auto [key, value] : pairs) {
    const path where{at, key};
    if (p.logit_bias.size() == logit_bias_max)
      return c.refuse(at, "invalid_value",
                      fmt::format("'logit_bias' must have at most {} tokens.", logit_bias_max));
    std::int32_t id = -1;
    const auto* end = key.data() + key.size();
    if (auto [stop, ec] = std::from_chars(key.data(), end, id);
        ec != std::errc{} || stop != end || id < 0)
      return c.refuse(where, "invalid_value", "The keys of 'logit_bias' must be token ids.");
    float bias = 0;
    if (!c.number(where, value, -100, 100, bias)) return false;
    p.logit_bias.emplace_back(id, bias);
  }
  return true;
}

bool read_stream_options(params& p, checker& c, const path& at, json v) {
  simdjson::dom::object members;
  if (!c.object(at, v, members)) return false;
  p.stream_options = v;
  for (auto [key, value] : members) {
    const path where{at, key};
    if (value.is_null()) continue;
    bool flag = false;
    if (key == "include_usage") {
      if (!c.boolean(where, value, p.include_usage)) return false;
    } else if (key == "include_obfuscation") {
      if (!c.boolean(where, value, flag)) return false;
      if (flag)
        return c.refuse(where, "unsupported_parameter",
                        "'stream_options.include_obfuscation' is not supported here.");
    } else {
      return c.refuse(where, "unknown_parameter",
                      fmt::format("Unknown parameter: '{}'.", where.text()));
    }
  }
  return true;
}

// Accepted without effect: it only labels a request that is stored, and nothing is stored here.
bool check_metadata(params&, checker& c, const path& at, json v) {
  simdjson::dom::object pairs;
  if (!c.object(at, v, pairs)) return false;
  if (pairs.size() > metadata_pairs_max)
    return c.refuse(at, "invalid_value",
                    fmt::format("'metadata' must have at most {} pairs.", metadata_pairs_max));
  for (auto [key, value] : pairs) {
    std::string_view ignored;
    if (!c.text(path{at, key}, value, ignored)) return false;
  }
  return true;
}

bool check_store(params&, checker& c, const path& at, json v) {
  bool store = false;
  if (!c.boolean(at, v, store)) return false;
  return !store || c.refuse(at, "unsupported_parameter",
                            "'store' must be false: answers are not stored here.");
}

bool check_service_tier(params&, checker& c, const path& at, json v) {
  std::string_view tier;
  if (!c.text(at, v, tier)) return false;
  return tier == "auto" || c.refuse(at, "unsupported_parameter", "'service_tier' must be 'auto'.");
}

bool read_user(params& p, checker& c, const path& at, json v) {
  if (!c.text(at, v, p.user)) return false;
  return p.user.size() <= user_bytes_max ||
         c.refuse(at, "invalid_value",
                  fmt::format("'user' must have at most {} bytes.", user_bytes_max));
}

bool read_seed(params& p, checker& c, const path& at, json v) {
  std::int64_t seed = 0;
  if (!c.integer(at, v, int64_min, int64_max, seed)) return false;
  p.seed = static_cast<std::uint64_t>(seed);
  return true;
}

bool read_top_k(params& p, checker& c, const path& at, json v) {
  // -1 is how other servers say "off".
  if (!c.integer(at, v, -1, tokens_max, p.top_k)) return false;
  p.top_k = std::max<std::int64_t>(p.top_k, 0);
  return true;
}

template <auto Member>
bool keep(params& p, checker&, const path&, json v) {
  p.*Member = v;
  return true;
}

template <auto Member, std::int64_t Low, std::int64_t High>
bool read_integer(params& p, checker& c, const path& at, json v) {
  std::int64_t n = 0;
  if (!c.integer(at, v, Low, High, n)) return false;
  p.*Member = n;
  return true;
}

template <auto Member, int Low, int High>
bool read_number(params& p, checker& c, const path& at, json v) {
  return c.number(at, v, Low, High, p.*Member);
}

template <auto Member>
bool read_boolean(params& p, checker& c, const path& at, json v) {
  bool b = false;
  if (!c.boolean(at, v, b)) return false;
  p.*Member = b;
  return true;
}

// A number on one endpoint, a boolean on the other.
bool read_logprobs_count(params& p, checker& c, const path& at, json v) {
  std::int64_t n = 0;
  if (!c.integer(at, v, 0, completion_logprobs_max, n)) return false;
  p.logprobs = true;
  p.top_logprobs = n;
  return true;
}

constexpr std::uint8_t chat = 1;
constexpr std::uint8_t completion = 2;
constexpr std::uint8_t both = 3;

constexpr std::array parameters = {
    known_parameter{"audio", chat, nullptr},
    known_parameter{"best_of", completion, read_integer<&params::best_of, 1, 128>},
    known_parameter{"chat_template_kwargs", chat, keep<&params::chat_template_kwargs>},
    known_parameter{"echo", completion, read_boolean<&params::echo>},
    known_parameter{"frequency_penalty", both, read_number<&params::frequency_penalty, -2, 2>},
    known_parameter{"function_call", chat, nullptr},
    known_parameter{"functions", chat, nullptr},
    known_parameter{"ignore_eos", both, read_boolean<&params::ignore_eos>},
    known_parameter{"logit_bias", both, read_logit_bias},
    known_parameter{"logprobs", chat, read_boolean<&params::logprobs>},
    known_parameter{"logprobs", completion, read_logprobs_count},
    known_parameter{"max_completion_tokens", chat,
                    read_integer<&params::max_completion_tokens, 1, tokens_max>},
    known_parameter{"max_tokens", both, read_integer<&params::max_tokens, 1, tokens_max>},
    known_parameter{"messages", chat, keep<&params::messages>},
    known_parameter{"metadata", both, check_metadata},
    known_parameter{"min_p", both, read_number<&params::min_p, 0, 1>},
    known_parameter{"modalities", chat, nullptr},
    known_parameter{
        "model", both,
        [](params& p, checker& c, const path& at, json v) { return c.text(at, v, p.model); }},
    known_parameter{"n", both, read_integer<&params::choices, 1, 65'535>},
    known_parameter{"parallel_tool_calls", chat, read_boolean<&params::parallel_tool_calls>},
    known_parameter{"prediction", chat, nullptr},
    known_parameter{"presence_penalty", both, read_number<&params::presence_penalty, -2, 2>},
    known_parameter{"prompt", completion, keep<&params::prompt>},
    known_parameter{"prompt_cache_key", chat, nullptr},
    known_parameter{"prompt_cache_retention", chat, nullptr},
    known_parameter{"reasoning_effort", chat, nullptr},
    known_parameter{"response_format", chat, keep<&params::response_format>},
    known_parameter{"safety_identifier", chat, nullptr},
    known_parameter{"seed", both, read_seed},
    known_parameter{"service_tier", both, check_service_tier},
    known_parameter{"stop", both, read_stop},
    known_parameter{"store", both, check_store},
    known_parameter{"stream", both, read_boolean<&params::stream>},
    known_parameter{"stream_options", both, read_stream_options},
    known_parameter{"suffix", completion, nullptr},
    known_parameter{"temperature", both, read_number<&params::temperature, 0, 2>},
    known_parameter{"tool_choice", chat, keep<&params::tool_choice>},
    known_parameter{"tools", chat, keep<&params::tools>},
    known_parameter{"top_k", both, read_top_k},
    known_parameter{"top_logprobs", chat, read_integer<&params::top_logprobs, 0, top_logprobs_max>},
    known_parameter{"top_p", both, read_number<&params::top_p, 0, 1>},
    known_parameter{"user", both, read_user},
    known_parameter{"verbosity", chat, nullptr},
    known_parameter{"web_search_options", chat, nullptr},
};

bool read_one(checker& c, const path& at, std::string_view key, json value, endpoint where,
              params& out) {
  const auto mask = static_cast<std::uint8_t>(where);
  const auto found = std::find_if(
      parameters.begin(), parameters.end(),
      [&](const known_parameter& k) { return k.name == key && (k.endpoints & mask) != 0; });
  if (found == parameters.end())
    return c.refuse(at, "unknown_parameter", fmt::format("Unknown parameter: '{}'.", at.text()));
  if (value.is_null()) return true;
  if (found->read == nullptr)
    return c.refuse(at, "unsupported_parameter",
                    fmt::format("'{}' is not supported by this server.", key));
  return found->read(out, c, at, value);
}

std::string_view text_at(json v, std::string_view key) {
  std::string_view out;
  return v.at_key(key).get(out) == simdjson::SUCCESS ? out : std::string_view{};
}

// The parameter by which a grammar may hold the answer; null: none.
const char* constrained_by(const params& p) {
  if (p.response_format && text_at(*p.response_format, "type") != "text") return "response_format";
  std::string_view choice;
  const bool calls = !p.tool_choice || p.tool_choice->get(choice) != simdjson::SUCCESS ||
                     choice != "none";
  return p.tools && calls ? "tools" : nullptr;
}

// What is right by itself, but not together.
bool check_together(checker& c, const path& root, endpoint where, const parse_options& options,
                    const params& p) {
  if (p.model.empty())
    return c.refuse(path{root, "model"}, "missing_required_parameter",
                    "'model' must name a model.");
  if (p.choices > options.choices_max)
    return c.refuse(path{root, "n"}, "invalid_value",
                    fmt::format("'n' must be from 1 to {}.", options.choices_max));
  if (p.max_tokens && p.max_completion_tokens && *p.max_tokens != *p.max_completion_tokens)
    return c.refuse(path{root, "max_tokens"}, "invalid_value",
                    "'max_tokens' and 'max_completion_tokens' differ; give only one.");
  if (p.stream_options && !p.stream)
    return c.refuse(path{root, "stream_options"}, "invalid_value",
                    "'stream_options' is only allowed when 'stream' is true.");
  if (where == endpoint::chat && p.top_logprobs && !p.logprobs)
    return c.refuse(path{root, "top_logprobs"}, "invalid_value",
                    "'top_logprobs' is only allowed when 'logprobs' is true.");
  if (p.best_of && *p.best_of != p.choices)
    return c.refuse(path{root, "best_of"}, "unsupported_parameter",
                    "'best_of' must equal 'n': choosing among answers is not supported here.");
  if (p.echo && p.logprobs)
    return c.refuse(path{root, "echo"}, "unsupported_parameter",
                    "'echo' together with 'logprobs' is not supported here.");
  // Where a grammar allows nothing but the end, an answer that must not end has no way to go on.
  if (const auto* by = p.ignore_eos ? constrained_by(p) : nullptr)
    return c.refuse(path{root, "ignore_eos"}, "unsupported_parameter",
                    fmt::format("'ignore_eos' together with '{}' is not supported here: such an "
                                "answer ends when it is complete.",
                                by));
  return true;
}

}  // namespace

bool read_params(checker& check, json body, endpoint where, const parse_options& options,
                 params& out) {
  const path root;
  simdjson::dom::object members;
  if (!check.object(root, body, members)) return false;
  std::unordered_set<std::string_view> seen;
  for (auto [key, value] : members) {
    const path at{root, key};
    // Which of two would count depends on the parser: whoever sent them should know.
    if (!seen.insert(key).second)
      return check.refuse(at, "duplicate_parameter",
                          fmt::format("'{}' is given more than once.", at.text()));
    if (!read_one(check, at, key, value, where, out)) return false;
  }
  return check_together(check, root, where, options, out);
}

}  // namespace troupe::gateway::openai
