#include "actors/gateway/openai/encode.hpp"

#include "actors/gateway/openai/json_output.hpp"
#include "gpu/text/utf8.hpp"

namespace troupe::gateway::openai {

namespace {

void write_model(json_writer& w, const listed_model& model, std::int64_t created) {
  w.StartObject();
  w.Key("id");
  write(w, model.name);
  w.Key("object");
  w.String("model");
  w.Key("created");
  w.Int64(created);
  w.Key("owned_by");
  w.String("troupe");
  w.EndObject();
}

/// What a client sent may be repeated in a message, cut anywhere; an answer is valid all the same.
void write_text(json_writer& w, const std::string& s) {
  text::utf8_assembler whole;
  auto valid = whole.push(s);
  valid += whole.finish();
  write(w, valid);
}

}  // namespace

std::string encode_error(const api_error& e) {
  std::string text;
  string_output out{text};
  json_writer w{out};
  w.StartObject();
  w.Key("error");
  w.StartObject();
  w.Key("message");
  write_text(w, e.message);
  w.Key("type");
  write(w, e.type);
  w.Key("param");
  if (e.param.empty())
    w.Null();
  else
    write_text(w, e.param);
  w.Key("code");
  write(w, e.code);
  w.EndObject();
  w.EndObject();
  return text;
}

std::string encode_models(const std::vector<listed_model>& models, std::int64_t created) {
  std::string text;
  string_output out{text};
  json_writer w{out};
  w.StartObject();
  w.Key("object");
  w.String("list");
  w.Key("data");
  w.StartArray();
  for (const auto& model : models) write_model(w, model, created);
  w.EndArray();
  w.EndObject();
  return text;
}

std::string encode_model(const listed_model& model, std::int64_t created) {
  std::string text;
  string_output out{text};
  json_writer w{out};
  write_model(w, model, created);
  return text;
}

void append_usage(std::string& to, const request::totals& sum) {
  string_output out{to};
  json_writer w{out};
  w.StartObject();
  w.Key("prompt_tokens");
  w.Uint(sum.prompt_tokens);
  w.Key("completion_tokens");
  w.Uint(sum.completion_tokens);
  w.Key("total_tokens");
  w.Uint64(std::uint64_t{sum.prompt_tokens} + sum.completion_tokens);
  w.Key("prompt_tokens_details");
  w.StartObject();
  w.Key("cached_tokens");
  w.Uint(sum.cached_tokens);
  w.EndObject();
  w.EndObject();
}

}  // namespace troupe::gateway::openai
