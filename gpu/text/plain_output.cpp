#include "gpu/text/plain_output.hpp"

#include "gpu/text/stop_matcher.hpp"
#include "gpu/text/utf8.hpp"

#include <utility>

namespace troupe::text {
namespace {

class plain_output final : public output_stream {
 public:
  plain_output(std::function<std::string(token_id)> piece, std::vector<std::string> stops)
      : piece_(std::move(piece)), stops_(std::move(stops)) {}

  text_delta push(token_id token) override {
    return to_delta(stops_.push(characters_.push(piece_(token))));
  }

  text_delta finish() override {
    if (stops_.stopped()) return {};
    auto last = stops_.push(characters_.finish());
    if (!last.stopped) last.text += stops_.finish();
    return to_delta(std::move(last));
  }

  std::uint32_t emitted_bytes() const override { return emitted_bytes_; }

 private:
  text_delta to_delta(stop_matcher::result&& found) {
    text_delta out;
    out.text = std::move(found.text);
    out.stopped = found.stopped;
    out.stop_text = std::move(found.stop_text);
    emitted_bytes_ += static_cast<std::uint32_t>(out.text.size());
    return out;
  }

  std::function<std::string(token_id)> piece_;
  utf8_assembler characters_;
  stop_matcher stops_;
  std::uint32_t emitted_bytes_ = 0;
};

}  // namespace

std::unique_ptr<output_stream> make_plain_output(std::function<std::string(token_id)> piece,
                                                 std::span<const std::string> plan_stops,
                                                 std::span<const std::string> client_stops) {
  return std::make_unique<plain_output>(std::move(piece), joined(plan_stops, client_stops));
}

}  // namespace troupe::text
