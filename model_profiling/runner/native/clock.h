// The clocks: the system's own, which latency is read from, and the tracers', which stands still while others compute.
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdint>

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
// or by the host of a virtual machine. An operator that was interrupted then takes as long as it computed. It is the
// clock of the thread that started it: where several work, one waits for the rest. Other threads, which an operator
// library may have, read the system's.
class TracerClock {
 public:
#ifdef __linux__
  static constexpr bool kSupported = true;
#else
  static constexpr bool kSupported = false;  // nothing of ours comes between XNNPACK and the system
#endif

  void start() {
    thread_ = pthread_self();
    running_ = kSupported;
    read_ = checked_ = now_ns();
    computed_ = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    waits_ = voluntary_switches();
  }

  bool running() const { return running_ && pthread_equal(thread_, pthread_self()); }

  int64_t now() {
    const int64_t now = now_ns();
    // The system takes the processor away for longer, and asking it about every operator would slow them down.
    constexpr int64_t kMoment = 200000;
    if (now - read_ > kMoment) {
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
    return now - lost_;
  }

 private:
  bool running_ = false;
  pthread_t thread_{};
  int64_t read_ = 0, checked_ = 0, computed_ = 0, lost_ = 0;
  long waits_ = 0;
};

inline TracerClock tracer_clock;

// A kernel trace (runner/kernel_trace.py) answers XNNPACK's reads itself, and knows XNNPACK by the caller's address.
using TraceClock = int (*)(void* caller, clockid_t, timespec*);
inline TraceClock kernel_trace_clock = nullptr;

inline void find_kernel_trace() {
  kernel_trace_clock = reinterpret_cast<TraceClock>(dlsym(RTLD_DEFAULT, "sme2_kit_read_clock"));
}

}  // namespace kit

#ifdef __linux__
// ExecuTorch and XNNPACK find this one before the C library's.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* at) noexcept {
  if (kit::kernel_trace_clock != nullptr) return kit::kernel_trace_clock(__builtin_return_address(0), clock, at);
  if (clock != CLOCK_MONOTONIC || !kit::tracer_clock.running()) return kit::read_system_clock(clock, at);
  const int64_t now = kit::tracer_clock.now();
  at->tv_sec = now / 1000000000;
  at->tv_nsec = now % 1000000000;
  return 0;
}
#endif
