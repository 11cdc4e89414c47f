#include "apps/bench/request_body.hpp"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>
#include <simdjson.h>

#include <string_view>

namespace troupe::bench {

namespace {

using json_writer = rapidjson::Writer<rapidjson::StringBuffer>;

void string(json_writer& w, std::string_view text) {
  w.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

}  // namespace

std::string path_of(endpoint kind) {
  return kind == endpoint::chat ? "/v1/chat/completions" : "/v1/completions";
}

std::string make_body(const body_options& options, const planned_request& request,
                      const std::string& prompt) {
  rapidjson::StringBuffer buffer{nullptr, prompt.size() + 512};
  json_writer w{buffer};
  w.StartObject();
  w.Key("model");
  string(w, options.model);
  if (options.kind == endpoint::chat) {
    w.Key("messages");
    w.StartArray();
    w.StartObject();
    w.Key("role");
    w.String("user");
    w.Key("content");
    string(w, prompt);
    w.EndObject();
    w.EndArray();
  } else {
    w.Key("prompt");
    string(w, prompt);
  }
  w.Key("max_tokens");
  w.Uint(request.max_tokens);
  if (options.stream) {
    w.Key("stream");
    w.Bool(true);
    if (options.usage) {
      w.Key("stream_options");
      w.StartObject();
      w.Key("include_usage");
      w.Bool(true);
      w.EndObject();
    }
  }
  if (options.temperature) {
    w.Key("temperature");
    w.Double(*options.temperature);
  }
  if (options.ignore_eos) {
    w.Key("ignore_eos");
    w.Bool(true);
  }
  for (const auto& [key, value] : options.extra) {
    string(w, key);  // a writer takes strings in key position as keys
    w.RawValue(value.data(), value.size(), rapidjson::kObjectType);
  }
  w.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

expected<std::vector<std::pair<std::string, std::string>>> parse_extra_body(
    const std::string& json) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(json).get(object)) return error{"extra_body_invalid", "not a JSON object"};
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto member : object)
    members.emplace_back(std::string{member.key}, simdjson::minify(member.value));
  return members;
}

}  // namespace troupe::bench
