// What the runner uses of ExecuTorch's libraries and has no header for; `upstream/libraries.py` has records and checks.
#pragma once

#include <cstddef>
#include <cstdint>

// cpuinfo's table of CPU features, one byte each.
extern "C" {
bool cpuinfo_initialize();
extern unsigned char cpuinfo_isa[];
}

// The members of the thread pool that libexecutorch_threadpool exports and that we need.
namespace executorch::extension::threadpool {
struct ThreadPool {
  bool _unsafe_reset_threadpool(uint32_t count);
  size_t get_thread_count() const;
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool
