// A row of the table of CPU features, which runner/build.py writes from features.py.
#pragma once

namespace kit {

enum class Agreement { EXACT, AT_LEAST, AT_MOST };

struct Feature {
  const char* name;
  int offset;
  Agreement agreement;
  int requires_[2];
  // Arm: the HWCAP word and bit, the bits to hide, and macOS' name.
  int word;
  int bit;
  unsigned long hide;
  const char* sysctl;
  // x86: the CPUID leaf and register, and the XCR0 bits.
  unsigned leaf;
  unsigned subleaf;
  int reg;
  unsigned xcr0;
};

struct Alias {
  const char* name;
  const char* feature;
};

}  // namespace kit
