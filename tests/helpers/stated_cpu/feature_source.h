// Takes the place of the runner's feature_source.h: the CPU is what a test states.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "private_symbols.h"

namespace kit {

enum class Known { no, yes, silent };
constexpr const char* kProof = "statement";

// What the independent source knows, what cpuinfo would put into its table, and whether features can be hidden from it.
struct StatedCpu {
  std::set<std::string> known, table;
  bool hides = false;
};
inline StatedCpu stated_cpu;

inline Known independently_known(const Feature& feature) {
  return stated_cpu.known.count(feature.name) ? Known::yes : Known::no;
}

inline bool initialize_without(const std::vector<bool>& gone) {
  for (const Feature& feature : kFeatures) {
    const bool hidden = stated_cpu.hides && gone[&feature - kFeatures];
    cpuinfo_isa[feature.offset] = stated_cpu.table.count(feature.name) && !hidden;
  }
  return stated_cpu.hides;
}

}  // namespace kit
