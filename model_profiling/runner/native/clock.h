// The clocks: the system's own, which latency is read from, and the tracers', which stands still while others compute.
#pragma once

#include <dlfcn.h>
#ifdef __linux__
#include <link.h>
#endif
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include <executorch/runtime/platform/platform.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace kit {

inline int read_system_clock(clockid_t clock, timespec* at) {
#ifdef __linux__
  using Read = int (*)(clockid_t, timespec*);
  // The one after ours, which is defined below.
  static const Read read = reinterpret_cast<Read>(dlsym(RTLD_NEXT, "clock_gettime"));
  return read(clock, at);
#else
  return clock_gettime(clock, at);
#endif
}

inline int64_t clock_ns(clockid_t clock) {
  timespec at{};
  read_system_clock(clock, &at);
  return static_cast<int64_t>(at.tv_sec) * 1000000000 + at.tv_nsec;
}

inline int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }

// How often this process gave the processor up by itself, to wait for something.
inline long voluntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

// What tracers read: the time that passed less that in which the processor was taken from this process, by the system
// or by the host of a virtual machine. An operator that was interrupted then takes as long as it computed. Where
// several threads work, one waits for the rest, and nothing is taken off. It is the clock of the thread that started
// it: others, which an operator library may have, read the system's.
//
// XNNPACK counts whole microseconds. It is shown a clock that is `kFaster` times as fast, and what ExecuTorch makes of
// its numbers are nanoseconds again, by the ratio that it asks for (see ticks_to_ns).
class TracerClock {
 public:
#ifdef __linux__
  static constexpr bool kSupported = true;
#else
  static constexpr bool kSupported = false;  // nothing of ours comes between XNNPACK and the system
#endif

  static constexpr int64_t kFaster = 1000;

  void start(bool stops) {
    thread_ = pthread_self();
    running_ = kSupported;
    stops_ = stops;
    started_ = read_ = checked_ = now_ns();
    computed_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    waits_ = voluntary_switches();
  }

  bool running() const { return running_ && pthread_equal(thread_, pthread_self()); }

  int64_t now() {
    const int64_t now = now_ns();
    // The system takes the processor away for longer, and asking it about every operator would slow them down.
    constexpr int64_t kMoment = 200000;
    if (stops_ && now - read_ > kMoment) {
      const int64_t computed = clock_ns(CLOCK_THREAD_CPUTIME_ID);
      const long waits = voluntary_switches();
      const int64_t missing = (now - checked_) - (computed - computed_);
      // What it waited for, such as a page of a file, is its own time.
      if (waits == waits_) lost_ += std::clamp<int64_t>(missing, 0, now - read_);
      checked_ = now;
      computed_ = computed;
      waits_ = waits;
    }
    read_ = now;
    if (writing_at_ >= 0) {
      written_ += now - lost_ - writing_at_;
      lost_ = now - writing_at_;
      writing_at_ = -1;
    }
    return now - lost_;
  }

  // From here to the next read the tracer writes down what it has measured, which is no part of what it measures.
  void begin_writing() { writing_at_ = now(); }

  int64_t written() const { return written_; }

  // Only differences are read of it; without seconds, for which XNNPACK would have to carry.
  int64_t now_for_xnnpack() { return (now() - started_) * kFaster; }

 private:
  bool running_ = false, stops_ = false;
  pthread_t thread_{};
  int64_t started_ = 0, read_ = 0, checked_ = 0, computed_ = 0, lost_ = 0, writing_at_ = -1, written_ = 0;
  long waits_ = 0;
};

inline TracerClock tracer_clock;

// A kernel trace (runner/kernel_trace.py) answers XNNPACK's reads itself, and knows XNNPACK by the caller's address.
using TraceClock = int (*)(void* caller, clockid_t, timespec*);
inline TraceClock kernel_trace_clock = nullptr;

inline void find_kernel_trace() {
  kernel_trace_clock = reinterpret_cast<TraceClock>(dlsym(RTLD_DEFAULT, "sme2_kit_read_clock"));
}

#ifdef __linux__
// Where the library with XNNPACK lies.
inline uintptr_t xnnpack_start = 0, xnnpack_end = 0;

inline int look_for_xnnpack(dl_phdr_info* info, size_t, void* name) {
  if (std::strstr(info->dlpi_name, static_cast<const char*>(name)) == nullptr) return 0;
  xnnpack_start = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    const uintptr_t end = xnnpack_start + part.p_vaddr + part.p_memsz;
    if (part.p_type == PT_LOAD) xnnpack_end = std::max(xnnpack_end, end);
  }
  return 1;
}

inline void find_xnnpack(std::string library) {
  library.erase(0, library.rfind('/') + 1);
  dl_iterate_phdr(look_for_xnnpack, library.data());
}

// Where nobody asks for the ratio, microseconds are what they are: it shows in the first execution with a tracer.
inline bool asks_for_ratio = false;

inline bool shows_faster() { return asks_for_ratio && kernel_trace_clock == nullptr && tracer_clock.running(); }
#else
constexpr uintptr_t xnnpack_end = 0;
inline bool asks_for_ratio = false;
inline void find_xnnpack(const std::string&) {}
inline bool shows_faster() { return false; }
#endif

// ExecuTorch's ticks are nanoseconds. It asks only when it turns XNNPACK's numbers, as microseconds, into ticks, which
// it then writes down: a name for each operator, within what it calls the time of the delegate.
inline et_tick_ratio_t ticks_to_ns() {
  const bool faster = shows_faster();
  asks_for_ratio = xnnpack_end != 0;
  if (!faster) return {1, 1};
  tracer_clock.begin_writing();
  return {TracerClock::kFaster, 1};
}

}  // namespace kit

#ifdef __linux__
// ExecuTorch and XNNPACK find this one before the C library's.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* at) noexcept {
  if (kit::kernel_trace_clock != nullptr) return kit::kernel_trace_clock(__builtin_return_address(0), clock, at);
  if (clock != CLOCK_MONOTONIC || !kit::tracer_clock.running()) return kit::read_system_clock(clock, at);
  const auto caller = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  if (kit::shows_faster() && caller >= kit::xnnpack_start && caller < kit::xnnpack_end) {
    *at = {0, kit::tracer_clock.now_for_xnnpack()};
    return 0;
  }
  const int64_t now = kit::tracer_clock.now();
  at->tv_sec = now / 1000000000;
  at->tv_nsec = now % 1000000000;
  return 0;
}
#endif
