#pragma once

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cstdint>
#include <string>

namespace troupe::request {

using json_writer = rapidjson::Writer<rapidjson::StringBuffer>;

// One field of an object that is being written.

inline void text(json_writer& w, const char* key, const std::string& value) {
  w.Key(key);
  w.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
}
inline void number(json_writer& w, const char* key, double value) {
  w.Key(key);
  w.Double(value);
}
inline void count(json_writer& w, const char* key, std::uint64_t value) {
  w.Key(key);
  w.Uint64(value);
}

}  // namespace troupe::request
