#include "apps/console/line_editor.hpp"

#include <editline/readline.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace troupe::apps::console {

namespace {

line_editor::completer& complete_by() {
  static line_editor::completer c;
  return c;
}

char* next_match(const char* text, int state) {
  static std::vector<std::string> matches;
  static std::size_t next = 0;
  if (state == 0) {
    matches = complete_by()(std::string(rl_line_buffer, static_cast<std::size_t>(rl_point)));
    std::erase_if(matches, [&](const std::string& m) { return !m.starts_with(text); });
    next = 0;
  }
  // The library frees it.
  return next < matches.size() ? ::strdup(matches[next++].c_str()) : nullptr;
}

char** complete(const char* text, int, int) {
  rl_attempted_completion_over = 1;  // never names of files
  return rl_completion_matches(text, next_match);
}

/// Empty where there is no place for it.
std::string place_of_history() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if ((state == nullptr || *state == 0) && (home == nullptr || *home == 0)) return {};
  const auto folder = (state != nullptr && *state != 0
                           ? std::filesystem::path{state}
                           : std::filesystem::path{home} / ".local" / "state") /
                      "troupe";
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  return failure ? std::string{} : (folder / "console_history").string();
}

}  // namespace

line_editor::line_editor(completer complete_with) : history_file_(place_of_history()) {
  complete_by() = std::move(complete_with);
  ::rl_initialize();
  rl_attempted_completion_function = complete;
  ::stifle_history(history_lines_max);
  if (!history_file_.empty()) ::read_history(history_file_.c_str());
}

line_editor::~line_editor() {
  if (!history_file_.empty()) ::write_history(history_file_.c_str());
  complete_by() = nullptr;
}

std::optional<std::string> line_editor::read(const std::string& prompt) {
  char* line = ::readline(prompt.c_str());
  if (line == nullptr) return std::nullopt;
  std::string text{line};
  std::free(line);
  if (!text.empty()) ::add_history(text.c_str());
  return text;
}

}  // namespace troupe::apps::console
