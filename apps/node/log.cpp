#include "apps/node/log.hpp"

#include <poll.h>
#include <unistd.h>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe::apps {

namespace {

class patient_sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit patient_sink(int descriptor) : descriptor_(descriptor) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (lost_ > 0 && !write(lines_lost())) {
      ++lost_;
      return;
    }
    lost_ = write(message) ? 0 : 1;
  }
  void flush_() override {}

  bool write(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (line.size() > write_bytes_max) {
      line.resize(write_bytes_max);
      line[write_bytes_max - 1] = '\n';
    }
    return write_patiently(descriptor_, {line.data(), line.size()}, std::chrono::milliseconds{0});
  }
  spdlog::details::log_msg lines_lost() {
    text_ = "event=log_lines_lost count=" + std::to_string(lost_) +
            " reason=\"nobody read the log\"";
    return {"troupe", spdlog::level::warn, text_};
  }

  int descriptor_;
  std::uint64_t lost_ = 0;  ///< since the last line that was written
  std::string text_;
};

}  // namespace

bool write_patiently(int descriptor, std::string_view text, std::chrono::milliseconds patience) {
  while (!text.empty()) {
    pollfd ready{descriptor, POLLOUT, 0};
    const auto found = ::poll(&ready, 1, static_cast<int>(patience.count()));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0 || (ready.revents & POLLOUT) == 0) return false;
    const auto written = ::write(descriptor, text.data(), std::min(text.size(), write_bytes_max));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void set_up_log(const std::string& level, const std::string& pattern, int descriptor) {
  auto logger = std::make_shared<spdlog::logger>("troupe",
                                                 std::make_shared<patient_sink>(descriptor));
  logger->set_pattern(pattern);
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(spdlog::level::from_str(level));
}

}  // namespace troupe::apps
