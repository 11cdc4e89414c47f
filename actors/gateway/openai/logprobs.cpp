#include "actors/gateway/openai/logprobs.hpp"

#include "actors/gateway/openai/json_output.hpp"
#include "gpu/text/utf8.hpp"

#include <algorithm>

namespace troupe::gateway::openai {

namespace {

// A token may hold a part of a character; its exact bytes are in `bytes`.
std::string readable(capnp::Data::Reader bytes) {
  text::utf8_assembler whole;
  auto s = whole.push({reinterpret_cast<const char*>(bytes.begin()), bytes.size()});
  s += whole.finish();
  return s;
}

template <class T>
void write_token(json_writer& w, T token) {
  w.Key("token");
  write(w, readable(token.getBytes()));
  w.Key("logprob");
  w.Double(finite_logprob(token.getLogprob()));
  w.Key("bytes");
  w.StartArray();
  for (auto byte : token.getBytes()) w.Uint(byte);
  w.EndArray();
}

}  // namespace

std::uint64_t characters_of(std::string_view text) {
  return static_cast<std::uint64_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

void append_chat_logprobs(std::string& to, logprob_list tokens) {
  for (auto token : tokens) {
    if (!to.empty() && to.back() == '}') to.push_back(',');
    string_output out{to};
    json_writer w{out};
    w.StartObject();
    write_token(w, token);
    w.Key("top_logprobs");
    w.StartArray();
    for (auto other : token.getTop()) {
      w.StartObject();
      write_token(w, other);
      w.EndObject();
    }
    w.EndArray();
    w.EndObject();
  }
}

void completion_logprobs::add(logprob_list tokens) {
  for (auto token : tokens) {
    const auto* comma = tokens_.empty() ? "" : ",";
    const auto name = readable(token.getBytes());
    tokens_ += comma;
    append_json(tokens_, name);
    for (auto* list : {&values_, &tops_, &offsets_}) *list += comma;
    {
      string_output out{values_};
      json_writer w{out};
      w.Double(finite_logprob(token.getLogprob()));
    }
    {
      string_output out{tops_};
      json_writer w{out};
      w.StartObject();
      for (auto other : token.getTop()) {
        write_key(w, readable(other.getBytes()));
        w.Double(finite_logprob(other.getLogprob()));
      }
      w.EndObject();
    }
    offsets_ += std::to_string(offset_);
    offset_ += characters_of(name);
  }
}

void completion_logprobs::flush(std::string& to) {
  to += R"({"tokens":[)";
  to += tokens_;
  to += R"(],"token_logprobs":[)";
  to += values_;
  to += R"(],"top_logprobs":[)";
  to += tops_;
  to += R"(],"text_offset":[)";
  to += offsets_;
  to += "]}";
  for (auto* list : {&tokens_, &values_, &tops_, &offsets_}) list->clear();
}

}  // namespace troupe::gateway::openai
