#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::apps::console {

/// Lines that a history file keeps.
inline constexpr int history_lines_max = 1'000;

/// Reads lines from a person, with history and completion (libedit). One at a time in a process:
/// libedit has global state.
class line_editor {
 public:
  /// What may stand at the end of a line.
  using completer = std::function<std::vector<std::string>(const std::string& line)>;
  explicit line_editor(completer complete);
  ~line_editor();
  line_editor(const line_editor&) = delete;
  line_editor& operator=(const line_editor&) = delete;

  /// Nothing at the end of the input.
  std::optional<std::string> read(const std::string& prompt);

 private:
  std::string history_file_;
};

}  // namespace troupe::apps::console
