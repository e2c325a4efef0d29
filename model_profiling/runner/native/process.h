// What the system knows of this process: how long it has lived, and how much memory it holds.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include "clock.h"

namespace kit {

// When the system started this process, on the clock of now_ns(); now, where it does not say.
// Linux tells when in ticks of some milliseconds. Until `main` a process computes and hardly ever waits, so that the
// time it has computed says more exactly how old it is; the ticks bound it from both sides. To be called first of all.
inline int64_t born_ns() {
#ifdef __APPLE__
  int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, static_cast<int>(getpid())};
  kinfo_proc info{};
  size_t size = sizeof info;
  if (sysctl(name, 4, &info, &size, nullptr, 0) != 0) return now_ns();
  const timeval start = info.kp_proc.p_starttime;
  const int64_t today = clock_ns(CLOCK_REALTIME);
  return now_ns() - (today - (static_cast<int64_t>(start.tv_sec) * 1000000000 + start.tv_usec * 1000));
#else
  const int64_t computed = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  const int64_t since_boot = clock_ns(CLOCK_BOOTTIME);
  // Read last: whoever is interrupted in between seems younger, and never older than it is.
  const int64_t now = now_ns();
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  // The second field is a name, which may contain anything; the twentieth after it is the start.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return now;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  const int64_t tick = 1000000000 / sysconf(_SC_CLK_TCK);
  const int64_t most = since_boot - std::strtoll(field.c_str(), nullptr, 10) * tick;
  return now - std::clamp(computed, std::max<int64_t>(0, most - tick), std::max<int64_t>(0, most));
#endif
}

// Bytes in memory now, and those of them that are no file's (on macOS: what the system charges to the process).
struct Memory {
  int64_t resident = 0;
  int64_t anonymous = 0;
};

inline Memory memory_now() {
  Memory found;
#ifdef __APPLE__
  task_vm_info_data_t info{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  if (task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count) == KERN_SUCCESS) {
    found.resident = static_cast<int64_t>(info.resident_size);
    found.anonymous = static_cast<int64_t>(info.phys_footprint);
  }
#else
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0, of_files = 0;
  if (file >> size >> resident >> of_files) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    found.resident = resident * page;
    found.anonymous = (resident - of_files) * page;
  }
#endif
  return found;
}

// The most that was in memory at once. Linux' getrusage also counts whoever started this process, before it became this
// program; /proc does not.
inline int64_t peak_memory() {
#ifdef __APPLE__
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
#else
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
#endif
}

// How many CPUs the system lets this process run on (taskset, cpusets and the like count); 0 where it does not say.
inline int64_t allowed_cpus() {
#ifdef __linux__
  // A fixed cpu_set_t has room for 1024 CPUs; where there are more, the system refuses a smaller set.
  for (size_t most = 1024; most <= 1 << 20; most *= 4) {
    cpu_set_t* const set = CPU_ALLOC(most);
    if (set == nullptr) return 0;
    const bool known = sched_getaffinity(0, CPU_ALLOC_SIZE(most), set) == 0;
    const int count = known ? CPU_COUNT_S(CPU_ALLOC_SIZE(most), set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
  return 0;
#else
  return std::max<int64_t>(0, sysconf(_SC_NPROCESSORS_ONLN));
#endif
}

// How long all threads of this process together have waited for a CPU that others had; -1: the system does not say.
inline int64_t waited_ns() {
#ifdef __linux__
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return -1;
  int64_t sum = 0;
  while (const dirent* const entry = readdir(threads)) {
    if (entry->d_name[0] == '.') continue;
    // Nanoseconds that it ran, and that it waited to run.
    std::ifstream file("/proc/self/task/" + std::string(entry->d_name) + "/schedstat");
    int64_t ran = 0, waited = 0;
    if (!(file >> ran >> waited)) {
      sum = -1;
      break;
    }
    sum += waited;
  }
  closedir(threads);
  return sum;
#else
  return -1;
#endif
}

// Which part of a file the system has in its page cache, in percent, dropped before if `drop`: -1 where that is not
// known. Pages that another process has mapped stay.
inline int64_t cached_percent(const std::string& path, bool drop) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (file < 0) return -1;
  int64_t percent = -1;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
#ifdef POSIX_FADV_DONTNEED
    if (drop) {
      fdatasync(file);
      posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    }
#endif
    const size_t size = static_cast<size_t>(status.st_size);
    void* const at = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) {
      const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
#ifdef __APPLE__
      std::vector<char> there((size + page - 1) / page);
#else
      std::vector<unsigned char> there((size + page - 1) / page);
#endif
      if (mincore(at, size, there.data()) == 0) {
        const auto count = std::count_if(there.begin(), there.end(), [](auto each) { return (each & 1) != 0; });
        percent = 100 * static_cast<int64_t>(count) / static_cast<int64_t>(there.size());
      }
      munmap(at, size);
    }
  }
  close(file);
  return percent;
}

}  // namespace kit
