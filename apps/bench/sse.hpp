#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::bench {

/// A longer event is a fault of the server.
inline constexpr std::size_t event_bytes_max = 1U << 20U;

/// Splits server-sent events out of a byte stream, wherever the network cut it. Only `data` fields
/// count.
class sse_splitter {
 public:
  /// Calls `on_event(std::string_view data)` for each event that `bytes` completes; the view ends
  /// with the call. False when an event is longer than `event_bytes_max`; the stream is then of no
  /// further use.
  template <class OnEvent>
  bool feed(std::string_view bytes, OnEvent&& on_event) {
    while (!bytes.empty()) {
      const auto end = bytes.find('\n');
      if (end == std::string_view::npos) {
        line_ += bytes;
        return line_.size() <= event_bytes_max;
      }
      // A line that came whole is read in place.
      if (line_.empty()) {
        if (!take_line(bytes.substr(0, end), on_event)) return false;
      } else {
        line_ += bytes.substr(0, end);
        if (!take_line(line_, on_event)) return false;
        line_.clear();
      }
      bytes.remove_prefix(end + 1);
    }
    return true;
  }

  /// Whether an event has begun and not ended.
  bool inside_event() const { return !line_.empty() || has_data_; }

 private:
  template <class OnEvent>
  bool take_line(std::string_view line, OnEvent&& on_event) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (has_data_) on_event(std::string_view{data_});
      data_.clear();
      has_data_ = false;
      return true;
    }
    constexpr std::string_view field = "data:";
    if (!line.starts_with(field)) return true;
    line.remove_prefix(field.size());
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
    return data_.size() <= event_bytes_max;
  }

  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace troupe::bench
