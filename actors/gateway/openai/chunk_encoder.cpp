#include "actors/gateway/openai/chunk_encoder.hpp"

#include "actors/gateway/openai/json_output.hpp"
#include "messages/finish_reason.hpp"

namespace troupe::gateway::openai {

namespace {

std::string_view view_of(capnp::Text::Reader t) { return {t.begin(), t.size()}; }

void append_tool_calls(std::string& to, capnp::List<msg::ToolCallDelta>::Reader calls) {
  string_output out{to};
  json_writer w{out};
  w.StartArray();
  for (auto call : calls) {
    w.StartObject();
    w.Key("index");
    w.Uint(call.getIndex());
    // Id and name come once; what follows is arguments.
    if (call.getId().size() > 0) {
      w.Key("id");
      write(w, view_of(call.getId()));
      w.Key("type");
      w.String("function");
    }
    w.Key("function");
    w.StartObject();
    if (call.getName().size() > 0) {
      w.Key("name");
      write(w, view_of(call.getName()));
    }
    w.Key("arguments");
    write(w, view_of(call.getArguments()));
    w.EndObject();
    w.EndObject();
  }
  w.EndArray();
}

}  // namespace

chunk_encoder::chunk_encoder(const answer_identity& who, bool include_usage, bool logprobs,
                             std::size_t choices)
    : chat_(who.chat), include_usage_(include_usage), logprobs_(logprobs) {
  prefix_ = R"(data: {"id":)";
  append_json(prefix_, who.id);
  prefix_ += who.chat ? R"(,"object":"chat.completion.chunk","created":)"
                      : R"(,"object":"text_completion","created":)";
  prefix_ += std::to_string(who.created);
  prefix_ += R"(,"model":)";
  append_json(prefix_, who.model);
  prefix_ += R"(,"system_fingerprint":)";
  append_json(prefix_, who.fingerprint);
  prefix_ += R"(,"choices":[)";
  suffix_ = include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
  if (!chat_ && logprobs_) completion_logprobs_.resize(choices);
}

void chunk_encoder::open(std::string& to, std::size_t choice) const {
  to += prefix_;
  to += R"({"index":)";
  to += std::to_string(choice);
}

void chunk_encoder::close(std::string& to, const char* finish) const {
  to += R"(,"finish_reason":)";
  if (finish == nullptr) {
    to += "null}";
  } else {
    to += '"';
    to += finish;
    to += "\"}";
  }
  to += suffix_;
}

void chunk_encoder::begin(std::string& to, std::size_t choice, std::string_view echo_text) {
  if (chat_) {
    open(to, choice);
    to += R"(,"delta":{"role":"assistant","content":""},"logprobs":null)";
    close(to, nullptr);
  } else if (!echo_text.empty()) {
    open(to, choice);
    to += R"(,"text":)";
    append_json(to, echo_text);
    to += R"(,"logprobs":null)";
    close(to, nullptr);
  }
}

void chunk_encoder::delta(std::string& to, std::size_t choice, msg::StreamDelta::Reader d) {
  if (chat_)
    chat_delta(to, choice, d);
  else
    completion_delta(to, choice, d);
}

void chunk_encoder::append_logprobs(std::string& to, std::size_t choice,
                                    msg::StreamDelta::Reader d) {
  to += R"(,"logprobs":)";
  if (!logprobs_ || d.getLogprobs().size() == 0) {
    to += "null";
  } else if (chat_) {
    to += R"({"content":[)";
    append_chat_logprobs(to, d.getLogprobs());
    to += R"(],"refusal":null})";
  } else {
    completion_logprobs_[choice].add(d.getLogprobs());
    completion_logprobs_[choice].flush(to);
  }
}

void chunk_encoder::chat_delta(std::string& to, std::size_t choice, msg::StreamDelta::Reader d) {
  const auto text = view_of(d.getText());
  const auto reasoning = view_of(d.getReasoning());
  const bool has_logprobs = logprobs_ && d.getLogprobs().size() > 0;
  const bool has_calls = d.getToolCalls().size() > 0;
  if (!text.empty() || !reasoning.empty() || has_calls || has_logprobs) {
    open(to, choice);
    to += R"(,"delta":{)";
    if (!reasoning.empty()) {
      to += R"("reasoning_content":)";
      append_json(to, reasoning);
      to += ',';
    }
    if (has_calls) {
      to += R"("tool_calls":)";
      append_tool_calls(to, d.getToolCalls());
      to += ',';
    }
    if (!text.empty() || has_logprobs) {
      to += R"("content":)";
      append_json(to, text);
    } else {
      to.pop_back();  // the comma
    }
    to += '}';
    append_logprobs(to, choice, d);
    close(to, nullptr);
  }
  if (const auto* finish = msg::finish_name(d.getFinish())) {
    open(to, choice);
    to += R"(,"delta":{},"logprobs":null)";
    close(to, finish);
  }
}

void chunk_encoder::completion_delta(std::string& to, std::size_t choice,
                                     msg::StreamDelta::Reader d) {
  const auto* finish = msg::finish_name(d.getFinish());
  const auto text = view_of(d.getText());
  const bool has_logprobs = logprobs_ && d.getLogprobs().size() > 0;
  if (text.empty() && finish == nullptr && !has_logprobs) return;
  open(to, choice);
  to += R"(,"text":)";
  append_json(to, text);
  append_logprobs(to, choice, d);
  close(to, finish);
}

void chunk_encoder::end(std::string& to, const request::totals& sum) {
  if (include_usage_) {
    to += prefix_;
    to += R"(],"usage":)";
    append_usage(to, sum);
    to += "}\n\n";
  }
  to += "data: [DONE]\n\n";
}

void chunk_encoder::error(std::string& to, const api_error& e) {
  to += "data: ";
  to += encode_error(e);
  to += "\n\n";
}

}  // namespace troupe::gateway::openai
