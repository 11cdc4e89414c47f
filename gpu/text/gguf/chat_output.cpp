#include "gpu/text/gguf/chat_output.hpp"

#include "gpu/text/gguf/plan_json.hpp"
#include "gpu/text/stop_matcher.hpp"
#include "gpu/text/utf8.hpp"

#include <chat.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

namespace troupe::gguf {
namespace {

using text::text_delta;

class chat_output final : public text::output_stream {
 public:
  chat_output(std::shared_ptr<const vocabulary> words, const engine::output_plan& plan,
              std::span<const std::string> stops)
      : words_(std::move(words)), spec_(parser_spec_from_json(plan.parser_json)),
        shown_(plan.preserved_tokens), stops_(text::joined(plan.stops, stops)) {
    std::sort(shown_.begin(), shown_.end());
    how_.format = static_cast<common_chat_format>(spec_.format);
    how_.generation_prompt = plan.generation_prompt;
    how_.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
    how_.parse_tool_calls = spec_.tool_calls;
    if (!spec_.parser.empty()) how_.parser.load(spec_.parser);
    message_.role = "assistant";
  }

  text_delta push(token_id token) override {
    // Markers of the parser's may be control tokens, which have no text otherwise.
    const bool shown = std::binary_search(shown_.begin(), shown_.end(), token);
    return take(stops_.push(characters_.push(words_->piece(token, shown))), stops_.stopped());
  }

  text_delta finish() override {
    if (finished_) return {};
    auto last = stops_.push(characters_.finish());
    if (!last.stopped) last.text += stops_.finish();
    return take(std::move(last), true);
  }

  std::uint32_t emitted_bytes() const override { return emitted_bytes_; }

 private:
  text_delta take(text::stop_matcher::result&& found, bool last) {
    text_delta out;
    out.stopped = found.stopped;
    out.stop_text = std::move(found.stop_text);
    answer_ += found.text;
    if (!finished_ && (last || due())) parse(out, last);
    finished_ = finished_ || last;
    out.has_tool_calls = !named_.empty();
    emitted_bytes_ += static_cast<std::uint32_t>(out.text.size());
    return out;
  }

  /// The parser reads an answer from its beginning, whatever it has read before.
  bool due() const {
    const auto size = answer_.size();
    const auto free = std::min(size, parsed_at_once_bytes_max);
    return size - parsed_bytes_ > (size - free) / parses_of_each_byte;
  }

  void parse(text_delta& out, bool last) {
    parsed_bytes_ = answer_.size();
    // An answer that ends early (length, stop string) is not whole: what of it is clear counts.
    if (last && update(out, false)) return flush_names(out);
    update(out, true);
    if (!last) return;
    // Nothing of an answer that makes no sense to the parser is kept from the client.
    if (message_.tool_calls.empty() && message_.reasoning_content.empty() &&
        answer_.starts_with(message_.content)) {
      out.text += answer_.substr(message_.content.size());
      message_.content = answer_;
    }
    flush_names(out);
  }

  /// False: the parser doesn't understand it (yet), or took something back.
  bool update(text_delta& out, bool partial) {
    try {
      auto now = common_chat_parse(answer_, partial, how_);
      if (now.empty()) return !partial && answer_.empty();
      now.set_tool_call_ids(ids_, [this] { return next_id(); });
      const auto diffs = common_chat_msg_diff::compute_diffs(message_, now);
      message_ = std::move(now);
      for (const auto& diff : diffs) add(out, diff, partial);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  void add(text_delta& out, const common_chat_msg_diff& diff, bool partial) {
    out.text += diff.content_delta;
    out.reasoning += diff.reasoning_content_delta;
    if (diff.tool_call_index == std::string::npos) return;
    const auto index = diff.tool_call_index;
    // A call is named before its arguments, and once its name cannot grow any more.
    for (std::size_t before = 0; before < index; ++before) name(out, before);
    if (!diff.tool_call_delta.arguments.empty() || !partial) name(out, index);
    if (!diff.tool_call_delta.arguments.empty())
      out.tool_calls.push_back(
          {static_cast<std::uint32_t>(index), {}, {}, diff.tool_call_delta.arguments});
  }

  void name(text_delta& out, std::size_t index) {
    if (named_.size() <= index) named_.resize(index + 1, false);
    if (named_[index] || message_.tool_calls[index].name.empty()) return;
    named_[index] = true;
    const auto& call = message_.tool_calls[index];
    out.tool_calls.push_back({static_cast<std::uint32_t>(index), call.id, call.name, {}});
  }

  void flush_names(text_delta& out) {
    for (std::size_t i = 0; i < message_.tool_calls.size(); ++i) name(out, i);
  }

  std::string next_id() {
    const auto number = ids_made_++;
    return fmt::format("call_{:016x}",
                       XXH3_64bits_withSeed(&number, sizeof(number), spec_.id_seed));
  }

  std::shared_ptr<const vocabulary> words_;
  parser_spec spec_;
  std::vector<token_id> shown_;
  text::utf8_assembler characters_;
  text::stop_matcher stops_;
  common_chat_parser_params how_;
  std::string answer_;
  std::size_t parsed_bytes_ = 0;  ///< of the answer, when it was last parsed
  common_chat_msg message_;       ///< as far as given out
  std::vector<std::string> ids_;
  std::uint64_t ids_made_ = 0;
  std::vector<bool> named_;
  std::uint32_t emitted_bytes_ = 0;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<text::output_stream> make_chat_output(std::shared_ptr<const vocabulary> words,
                                                      const engine::output_plan& plan,
                                                      std::span<const std::string> stops) {
  return std::make_unique<chat_output>(std::move(words), plan, stops);
}

}  // namespace troupe::gguf
