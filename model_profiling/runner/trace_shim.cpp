// The recorder that a kernel trace preloads; kernel_trace.py puts the names of kernels and of the backend into it.
// Records are {kernel, calls} or {-1 for a mark, ns told}; written as text when the process ends.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *const kNames[] = {
@NAMES@
};
struct Record { int32_t kernel; uint64_t value; };
static Record *records;
static size_t used, room;
static uint64_t reads, told;
static void *real[@COUNT@];
static uintptr_t backend_start, backend_end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(int32_t kernel, uint64_t value) {
  // Calls of one kernel for one operator are one record: an operator has few kernels and may call them very often.
  for (size_t i = used; kernel >= 0 && i > 0 && records[i - 1].kernel >= 0; --i) {
    if (records[i - 1].kernel != kernel) continue;
    records[i - 1].value++;
    return;
  }
  if (used == room) {
    const size_t more = room ? 2 * room : 4096;
    Record *const grown = static_cast<Record *>(realloc(records, more * sizeof(Record)));
    if (grown == nullptr) abort();  // a trace with holes would be believed
    records = grown;
    room = more;
  }
  records[used++] = Record{kernel, value};
}

extern "C" __attribute__((visibility("hidden"))) void *sme2_kit_note(int32_t kernel) {
  pthread_mutex_lock(&lock);
  if (real[kernel] == nullptr) {
    real[kernel] = dlsym(dlopen("@BACKEND@", RTLD_NOLOAD | RTLD_NOW), kNames[kernel]);
    if (real[kernel] == nullptr) abort();
  }
  add(kernel, 1);
  pthread_mutex_unlock(&lock);
  return real[kernel];
}

static int find_backend(dl_phdr_info *info, size_t, void *) {
  if (strstr(info->dlpi_name, "@BACKEND@") == nullptr) return 0;
  backend_start = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type == PT_LOAD && end > backend_end) backend_end = end;
  }
  return 1;
}

// Each read is another number of microseconds, XNNPACK's unit, after the one before it.
static uint64_t tell() {
  pthread_mutex_lock(&lock);
  const uint64_t now = told += (1 + reads++ % 4096) * 1000;
  add(-1, now);
  pthread_mutex_unlock(&lock);
  return now;
}

// The kit's runner has a clock of its own, which asks here; other runners read the C library's, which is below.
extern "C" int sme2_kit_read_clock(void *from, clockid_t clock, timespec *at) {
  const uintptr_t caller = reinterpret_cast<uintptr_t>(from);
  if (backend_end == 0) dl_iterate_phdr(find_backend, nullptr);
  if (caller >= backend_start && caller < backend_end) {
    const uint64_t now = tell();
    *at = timespec{time_t(now / 1000000000u), long(now % 1000000000u)};
    return 0;
  }
  return syscall(SYS_clock_gettime, clock, at);
}

extern "C" int clock_gettime(clockid_t clock, timespec *at) {
  return sme2_kit_read_clock(__builtin_return_address(0), clock, at);
}

__attribute__((destructor)) static void report() {
  const char *const path = getenv("SME2_KIT_KERNEL_TRACE");
  if (path == nullptr) return;
  FILE *const file = fopen(path, "w");
  if (file == nullptr) return;
  for (size_t i = 0; i < used; ++i) {
    const Record &r = records[i];
    fprintf(file, "%s %llu\n", r.kernel < 0 ? "-" : kNames[r.kernel], (unsigned long long)r.value);
  }
  fputs("end\n", file);
  fclose(file);
}
