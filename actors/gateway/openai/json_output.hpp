#pragma once

#include <rapidjson/writer.h>

#include <cmath>
#include <string>
#include <string_view>

namespace troupe::gateway::openai {

/// RapidJSON's idea of an output: appends to a string that others append to as well.
class string_output {
 public:
  using Ch = char;
  explicit string_output(std::string& to) : to_(&to) {}
  void Put(char c) { to_->push_back(c); }
  void Flush() {}

 private:
  std::string* to_;
};

using json_writer = rapidjson::Writer<string_output>;

inline void write(json_writer& w, std::string_view s) {
  w.String(s.data(), static_cast<rapidjson::SizeType>(s.size()));
}

inline void write_key(json_writer& w, std::string_view s) {
  w.Key(s.data(), static_cast<rapidjson::SizeType>(s.size()));
}

/// Appends a JSON string, quoted and escaped.
inline void append_json(std::string& to, std::string_view s) {
  string_output out{to};
  json_writer w{out};
  write(w, s);
}

/// JSON has no infinity; a log probability of "never" is what OpenAI writes for it.
inline double finite_logprob(float value) {
  constexpr double never = -9999.0;
  return std::isfinite(value) ? static_cast<double>(value) : never;
}

}  // namespace troupe::gateway::openai
