#include "actors/gateway/openai/whole_answer.hpp"

#include "actors/gateway/openai/json_output.hpp"
#include "messages/finish_reason.hpp"

#include <utility>

namespace troupe::gateway::openai {

namespace {

// An index comes from a worker; no answer has more calls than this.
constexpr std::size_t tool_calls_of_answer_max = 1'024;

std::string_view view_of(capnp::Text::Reader t) { return {t.begin(), t.size()}; }

}  // namespace

whole_answer::whole_answer(answer_identity who, bool logprobs, std::size_t choices)
    : who_(std::move(who)), logprobs_(logprobs), choices_(choices) {}

void whole_answer::begin(std::size_t choice, std::string_view echo_text) {
  auto& c = choices_.at(choice);
  c.text = echo_text;
  bytes_ += echo_text.size();
}

void whole_answer::delta(std::size_t choice, msg::StreamDelta::Reader d) {
  auto& c = choices_.at(choice);
  c.text += view_of(d.getText());
  c.reasoning += view_of(d.getReasoning());
  bytes_ += d.getText().size() + d.getReasoning().size();
  for (auto call : d.getToolCalls()) {
    if (call.getIndex() >= tool_calls_of_answer_max) continue;
    if (c.tool_calls.size() <= call.getIndex()) {
      bytes_ += (call.getIndex() + 1U - c.tool_calls.size()) * sizeof(tool_call);
      c.tool_calls.resize(call.getIndex() + 1U);
    }
    auto& to = c.tool_calls[call.getIndex()];
    to.id += view_of(call.getId());
    to.name += view_of(call.getName());
    to.arguments += view_of(call.getArguments());
    bytes_ += call.getId().size() + call.getName().size() + call.getArguments().size();
  }
  if (logprobs_ && d.getLogprobs().size() > 0) {
    const auto before = c.chat_logprobs.size() + c.text_logprobs.bytes();
    if (who_.chat)
      append_chat_logprobs(c.chat_logprobs, d.getLogprobs());
    else
      c.text_logprobs.add(d.getLogprobs());
    bytes_ += c.chat_logprobs.size() + c.text_logprobs.bytes() - before;
  }
  if (d.getFinish() != msg::FinishReason::NONE) c.finish = d.getFinish();
}

void whole_answer::encode_message(std::string& to, const choice_state& c) const {
  string_output out{to};
  json_writer w{out};
  w.StartObject();
  w.Key("role");
  w.String("assistant");
  w.Key("content");
  if (c.text.empty() && !c.tool_calls.empty())
    w.Null();
  else
    write(w, c.text);
  w.Key("refusal");
  w.Null();
  if (!c.reasoning.empty()) {
    w.Key("reasoning_content");
    write(w, c.reasoning);
  }
  if (!c.tool_calls.empty()) {
    w.Key("tool_calls");
    w.StartArray();
    for (const auto& call : c.tool_calls) {
      w.StartObject();
      w.Key("id");
      write(w, call.id);
      w.Key("type");
      w.String("function");
      w.Key("function");
      w.StartObject();
      w.Key("name");
      write(w, call.name);
      w.Key("arguments");
      write(w, call.arguments);
      w.EndObject();
      w.EndObject();
    }
    w.EndArray();
  }
  w.EndObject();
}

void whole_answer::encode_logprobs(std::string& to, choice_state& c) const {
  to += R"(,"logprobs":)";
  if (!logprobs_) {
    to += "null";
  } else if (who_.chat) {
    to += R"({"content":[)";
    to += c.chat_logprobs;
    to += R"(],"refusal":null})";
  } else {
    c.text_logprobs.flush(to);
  }
}

std::string whole_answer::encode(const request::totals& sum) {
  std::string to;
  to.reserve(bytes_ + 512 + 128 * choices_.size());
  to += R"({"id":)";
  append_json(to, who_.id);
  to += who_.chat ? R"(,"object":"chat.completion","created":)"
                  : R"(,"object":"text_completion","created":)";
  to += std::to_string(who_.created);
  to += R"(,"model":)";
  append_json(to, who_.model);
  to += R"(,"system_fingerprint":)";
  append_json(to, who_.fingerprint);
  to += R"(,"choices":[)";
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    auto& c = choices_[i];
    to += i == 0 ? R"({"index":)" : R"(,{"index":)";
    to += std::to_string(i);
    if (who_.chat) {
      to += R"(,"message":)";
      encode_message(to, c);
    } else {
      to += R"(,"text":)";
      append_json(to, c.text);
    }
    encode_logprobs(to, c);
    to += R"(,"finish_reason":)";
    const auto* finish = msg::finish_name(c.finish);
    to += finish == nullptr ? "null" : "\"" + std::string(finish) + "\"";
    to += '}';
  }
  to += R"(],"usage":)";
  append_usage(to, sum);
  to += '}';
  return to;
}

}  // namespace troupe::gateway::openai
