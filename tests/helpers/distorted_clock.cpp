// A clock by which nothing takes the time that it takes, preloaded into the kit's runner by tests (distorted_clock.py).
// Each process is faster or slower as a whole, by up to a factor of two, and each moment of it by more; time still only
// goes forward. What holds by this clock does not depend on how long anything took.
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
  int64_t at(int64_t now) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (last_ == 0) {
      if (getrandom(&state_, sizeof state_, 0) != sizeof state_) state_ = now;
      state_ |= 1;
      process_ = std::exp2(2 * uniform() - 1);
      last_ = shown_ = now;
    }
    if (now >= until_) {
      rate_ = process_ * std::exp2(4 * uniform() - 2);
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
};

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* at) noexcept {
  using Read = int (*)(clockid_t, timespec*);
  static const Read read = reinterpret_cast<Read>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = read(clock, at);
  if (clock == CLOCK_MONOTONIC && in_the_runner()) {
    static DistortedClock distorted;
    const int64_t now = distorted.at(static_cast<int64_t>(at->tv_sec) * 1000000000 + at->tv_nsec);
    at->tv_sec = now / 1000000000;
    at->tv_nsec = now % 1000000000;
  }
  return result;
}
