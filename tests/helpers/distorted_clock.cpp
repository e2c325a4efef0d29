// A clock by which nothing takes the time that it takes, preloaded into the kit's runner by tests (distorted_clock.py).
// It runs up to four times as fast in one process as in another. In half of them that is all: these look like calm
// measurements, and what they say of each other is chance. In the others each moment has a speed of its own, and the
// processor seems to be taken away. It never runs slowly, so that budgets are spent soon. What holds by this clock depends
// on no time that was measured.
#include <dlfcn.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <mutex>

namespace {

bool in_the_runner() {
  static const bool found = [] {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return false;
    path[length] = 0;
    const char* slash = strrchr(path, '/');
    return slash != nullptr && strcmp(slash + 1, "sme2_runner") == 0;
  }();
  return found;
}

class DistortedClock {
 public:
  DistortedClock() {
    if (getrandom(&state_, sizeof state_, 0) != sizeof state_) state_ = getpid();
    state_ |= 1;
    for (int i = 0; i < 8; ++i) uniform();
    process_ = rate_ = std::exp2(2 * uniform());
    calm_ = uniform() < 0.5;
  }

  int64_t computed(int64_t ns) const { return calm_ ? static_cast<int64_t>(static_cast<double>(ns) * process_) : ns; }

  int64_t at(int64_t now) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (last_ == 0) last_ = shown_ = now;
    if (!calm_ && now >= until_) {
      rate_ = process_ * std::exp2(3 * uniform());
      until_ = now + static_cast<int64_t>(2e6 * uniform());
    }
    shown_ += static_cast<int64_t>(static_cast<double>(now - last_) * rate_);
    last_ = now;
    return shown_;
  }

 private:
  double uniform() {  // xorshift: at least 0, below 1
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

  std::mutex mutex_;
  uint64_t state_ = 0;
  int64_t last_ = 0, shown_ = 0, until_ = 0;
  double process_ = 1, rate_ = 1;
  bool calm_ = false;
};

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* at) noexcept {
  using Read = int (*)(clockid_t, timespec*);
  static const Read read = reinterpret_cast<Read>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = read(clock, at);
  const bool of_processor = clock == CLOCK_THREAD_CPUTIME_ID || clock == CLOCK_PROCESS_CPUTIME_ID;
  if ((clock == CLOCK_MONOTONIC || of_processor) && in_the_runner()) {
    static DistortedClock distorted;
    const int64_t now = static_cast<int64_t>(at->tv_sec) * 1000000000 + at->tv_nsec;
    const int64_t shown = of_processor ? distorted.computed(now) : distorted.at(now);
    at->tv_sec = shown / 1000000000;
    at->tv_nsec = shown % 1000000000;
  }
  return result;
}
