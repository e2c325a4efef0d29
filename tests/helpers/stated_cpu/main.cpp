// The runner's cpu_features.h on CPUs that are stated: one line in, one line out.
#include <iostream>
#include <sstream>

#include "cpu_features.h"

unsigned char cpuinfo_isa[256];

static std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> found;
  for (std::string word; stream >> word;) found.push_back(word);
  return found;
}

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> parts(1);
    for (const char c : line) c == ';' ? parts.push_back("") : parts.back().push_back(c);
    const auto known = words(parts.at(0)), table = words(parts.at(1));
    kit::stated_cpu = {{known.begin(), known.end()}, {table.begin(), table.end()}, parts.at(3) == "hides"};
    try {
      kit::mask_features(words(parts.at(2))).print();
    } catch (const kit::Failure& failure) {
      kit::Line("failure").add("code", static_cast<int64_t>(failure.code)).add("message", std::string(failure.what())).print();
    }
  }
}
