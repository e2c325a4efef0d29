// What the system says of the CPU's features, independently of cpuinfo's table, and how that table is filled.
#pragma once

#include <string>
#include <vector>

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

#include "failure.h"
#include "private_symbols.h"

namespace kit {

enum class Known { no, yes, silent };

#if defined(__linux__) && defined(__aarch64__)
constexpr const char* kProof = "HWCAP";
extern "C" unsigned long __getauxval(unsigned long type);  // the C library's, under the name that is not replaced below

struct HiddenHwcap {
  unsigned long bits[2] = {0, 0};
  bool in_force = false, asked_for = false;
};
inline HiddenHwcap hidden_hwcap;

inline Known independently_known(const Feature& feature) {
  const unsigned long caps = __getauxval(feature.word == 1 ? AT_HWCAP : AT_HWCAP2);
  return caps >> feature.bit & 1 ? Known::yes : Known::no;
}

// Has cpuinfo fill its table without the features that are `gone`; false if it had done so before, or asks elsewhere.
inline bool initialize_without(const std::vector<bool>& gone) {
  for (size_t i = 0; i < gone.size(); ++i) {
    if (gone[i]) hidden_hwcap.bits[kFeatures[i].word - 1] |= kFeatures[i].hide;
  }
  hidden_hwcap.in_force = true;
  const bool initialized = cpuinfo_initialize();
  hidden_hwcap.in_force = false;
  if (!initialized) throw Failure(Exit::FEATURES_UNPROVEN, "cpuinfo could not be initialised on this CPU");
  return hidden_hwcap.asked_for;
}
#elif defined(__APPLE__)
constexpr const char* kProof = "sysctl hw.optional.arm";
inline Known independently_known(const Feature& feature) {
  int value = 0;
  size_t size = sizeof value;
  const std::string name = std::string("hw.optional.arm.") + feature.sysctl;
  // A name that this macOS does not know says nothing either way.
  if (sysctlbyname(name.c_str(), &value, &size, nullptr, 0) != 0) return Known::silent;
  return value ? Known::yes : Known::no;
}
#elif defined(__x86_64__)
constexpr const char* kProof = "CPUID";
inline Known independently_known(const Feature& feature) {
  unsigned int registers[4] = {0, 0, 0, 0};  // eax, ebx, ecx, edx
  if (!__get_cpuid_count(feature.leaf, feature.subleaf, &registers[0], &registers[1], &registers[2], &registers[3])) {
    return Known::no;
  }
  if (!(registers[feature.reg] >> feature.bit & 1)) return Known::no;
  if (feature.xcr0 == 0) return Known::yes;
  unsigned int a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return Known::no;  // OSXSAVE: may xgetbv be used?
  unsigned int low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & feature.xcr0) == feature.xcr0 ? Known::yes : Known::no;
}
#else
#error "the runner knows aarch64 and x86_64"
#endif

#if !(defined(__linux__) && defined(__aarch64__))
inline bool initialize_without(const std::vector<bool>&) {
  if (!cpuinfo_initialize()) throw Failure(Exit::FEATURES_UNPROVEN, "cpuinfo could not be initialised on this CPU");
  return false;
}
#endif

}  // namespace kit

#if defined(__linux__) && defined(__aarch64__)
// cpuinfo calls this one, because a program's own function comes before the C library's.
extern "C" unsigned long getauxval(unsigned long type) noexcept {
  const unsigned long value = kit::__getauxval(type);
  if (!kit::hidden_hwcap.in_force || (type != AT_HWCAP && type != AT_HWCAP2)) return value;
  kit::hidden_hwcap.asked_for = true;
  return value & ~kit::hidden_hwcap.bits[type == AT_HWCAP ? 0 : 1];
}
#endif
