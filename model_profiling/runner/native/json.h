// Just enough JSON to say one flat line per event.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace kit {

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      // Bytes outside ASCII may not be UTF-8; each is said as the code point of the same number.
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

inline std::string to_json(const std::string& value) { return quoted(value); }
inline std::string to_json(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}
inline std::string to_json(int64_t value) { return std::to_string(value); }

template <typename T>
std::string to_json(const std::vector<T>& values) {
  std::string out = "[";
  for (const T& value : values) out += (out.size() > 1 ? "," : "") + to_json(value);
  return out + "]";
}

// Builds {"event":"…", …} in the order the fields are added.
class Line {
 public:
  explicit Line(const char* event) : text_("{\"event\":" + quoted(event)) {}

  template <typename T>
  Line& add(const char* key, const T& value) {
    text_ += "," + quoted(key) + ":" + to_json(value);
    return *this;
  }

  void print() const { std::fputs((text_ + "}\n").c_str(), stdout); }

 private:
  std::string text_;
};

}  // namespace kit
