// Preloaded into workers by `--profile` (LD_PRELOAD): counts the bytes that the process holds from malloc and its kin,
// and from anonymous writable mmap. The worker SDKs find the three functions at the end by name, where they are loaded.
// Not seen: memory from brk, from mmap inside the C library itself (stacks), and reservations that mprotect opens
// later.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<std::int64_t> current{0}, peak{0}, base{0};

void add(std::int64_t bytes) {
  const std::int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void subtract(std::int64_t bytes) { current.fetch_sub(bytes, std::memory_order_relaxed); }

std::int64_t size_of(void* memory) { return static_cast<std::int64_t>(malloc_usable_size(memory)); }

void* counted(void* memory) {
  if (memory) add(size_of(memory));
  return memory;
}

// What is asked for while dlsym looks the real functions up comes from here, and is never given back.
alignas(64) std::byte early[1 << 16];
std::atomic<std::size_t> early_used{0};
__attribute__((tls_model("initial-exec"))) thread_local bool resolving = false;

void* early_memory(std::size_t bytes, std::size_t alignment = 16) {
  alignment = std::max<std::size_t>(alignment, 16);
  const std::size_t start = early_used.fetch_add(bytes + alignment) + alignment;
  const std::size_t offset = start / alignment * alignment;
  return alignment <= 64 && offset + bytes <= sizeof early ? early + offset : nullptr;
}

bool is_early(const void* memory) { return memory >= early && memory < early + sizeof early; }

// The next library's function of that name; nullptr while it is being looked up on this thread.
template <typename Function>
class Real {
 public:
  explicit constexpr Real(const char* name) : name_(name) {}
  Function* get() {
    Function* function = function_.load(std::memory_order_acquire);
    if (function || resolving) return function;
    resolving = true;
    function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
    resolving = false;
    function_.store(function, std::memory_order_release);
    return function;
  }

 private:
  const char* const name_;
  std::atomic<Function*> function_{nullptr};
};

constinit Real<void*(std::size_t)> real_malloc("malloc");
constinit Real<void*(std::size_t, std::size_t)> real_calloc("calloc");
constinit Real<void*(void*, std::size_t)> real_realloc("realloc");
constinit Real<void(void*)> real_free("free");
constinit Real<int(void**, std::size_t, std::size_t)> real_posix_memalign("posix_memalign");
constinit Real<void*(std::size_t, std::size_t)> real_aligned_alloc("aligned_alloc");
constinit Real<void*(std::size_t, std::size_t)> real_memalign("memalign");
constinit Real<void*(void*, std::size_t, int, int, int, off_t)> real_mmap("mmap");
constinit Real<int(void*, std::size_t)> real_munmap("munmap");

// The mappings that are counted: munmap says nothing about what it unmaps. When the table is full, more are not
// counted.
struct Mapping {
  std::uintptr_t begin = 0, end = 0;
};
constexpr std::size_t kMappings = 4096;
Mapping mappings[kMappings];
std::size_t mappings_used = 0;  // those behind are empty
std::atomic_flag mappings_held = ATOMIC_FLAG_INIT;

class MappingsLock {
 public:
  MappingsLock() {
    while (mappings_held.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~MappingsLock() { mappings_held.clear(std::memory_order_release); }
};

bool remember(std::uintptr_t begin, std::uintptr_t end) {
  for (std::size_t i = 0; i < kMappings; ++i) {
    if (mappings[i].begin != mappings[i].end) continue;
    mappings[i] = {begin, end};
    mappings_used = std::max(mappings_used, i + 1);
    return true;
  }
  return false;
}

// Takes [begin, end) out of the mappings; returns how many bytes of it were counted.
std::int64_t forget(std::uintptr_t begin, std::uintptr_t end) {
  std::int64_t bytes = 0;
  const std::size_t used = mappings_used;
  for (std::size_t i = 0; i < used; ++i) {
    const Mapping old = mappings[i];
    const std::uintptr_t from = std::max(begin, old.begin), to = std::min(end, old.end);
    if (from >= to) continue;
    bytes += static_cast<std::int64_t>(to - from);
    mappings[i] = {old.begin, from};
    if (to == old.end) continue;
    if (from == old.begin) {
      mappings[i] = {to, old.end};
    } else if (!remember(to, old.end)) {
      bytes += static_cast<std::int64_t>(old.end - to);
    }
  }
  return bytes;
}

std::uintptr_t address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

void* map(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  auto* const real = real_mmap.get();
  void* const memory = real ? real(where, bytes, protection, flags, file, offset) : MAP_FAILED;
  if (memory == MAP_FAILED) return memory;
  const std::uintptr_t begin = address(memory), end = begin + whole_pages(bytes);
  const bool counts = (flags & MAP_ANONYMOUS) != 0 && (protection & PROT_WRITE) != 0;
  const MappingsLock lock;
  if ((flags & MAP_FIXED) != 0) subtract(forget(begin, end));
  if (counts && remember(begin, end)) add(static_cast<std::int64_t>(end - begin));
  return memory;
}

}  // namespace

EXPORT void* malloc(std::size_t bytes) {
  auto* const real = real_malloc.get();
  return real ? counted(real(bytes)) : early_memory(bytes);
}

EXPORT void* calloc(std::size_t count, std::size_t bytes) {
  auto* const real = real_calloc.get();
  return real ? counted(real(count, bytes)) : early_memory(count * bytes);  // static memory is zero
}

EXPORT void free(void* memory) {
  if (!memory || is_early(memory)) return;
  const int error = errno;
  if (auto* const real = real_free.get()) {
    subtract(size_of(memory));
    real(memory);
  }
  errno = error;
}

EXPORT void* realloc(void* memory, std::size_t bytes) {
  if (memory && is_early(memory)) {
    void* const moved = malloc(bytes);
    const auto left = static_cast<std::size_t>(early + sizeof early - static_cast<std::byte*>(memory));
    if (moved) std::memcpy(moved, memory, std::min(bytes, left));
    return moved;
  }
  auto* const real = real_realloc.get();
  if (!real) return memory ? nullptr : early_memory(bytes);
  const std::int64_t before = memory ? size_of(memory) : 0;
  void* const moved = real(memory, bytes);
  if (moved || bytes == 0) subtract(before);
  return counted(moved);
}

EXPORT int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  auto* const real = real_posix_memalign.get();
  if (!real) return (*memory = early_memory(bytes, alignment)) ? 0 : ENOMEM;
  const int error = real(memory, alignment, bytes);
  if (error == 0) counted(*memory);
  return error;
}

EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  auto* const real = real_aligned_alloc.get();
  return real ? counted(real(alignment, bytes)) : early_memory(bytes, alignment);
}

EXPORT void* memalign(std::size_t alignment, std::size_t bytes) {
  auto* const real = real_memalign.get();
  return real ? counted(real(alignment, bytes)) : early_memory(bytes, alignment);
}

EXPORT void* mmap(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  return map(where, bytes, protection, flags, file, offset);
}

EXPORT void* mmap64(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  return map(where, bytes, protection, flags, file, offset);
}

EXPORT int munmap(void* memory, std::size_t bytes) {
  auto* const real = real_munmap.get();
  if (!real) return -1;
  {
    // Before it is gone: the next mmap of another thread may get the same place.
    const MappingsLock lock;
    subtract(forget(address(memory), address(memory) + whole_pages(bytes)));
  }
  return real(memory, bytes);
}

// From now on.
EXPORT void opdiff_peak_reset() {
  const std::int64_t now = current.load();
  base.store(now);
  peak.store(now);
}

// The most bytes that were held at once since the reset, beyond those held at it.
EXPORT std::int64_t opdiff_peak_bytes() { return std::max<std::int64_t>(0, peak.load() - base.load()); }

// How many bytes more are held than at the reset.
EXPORT std::int64_t opdiff_held_bytes() { return std::max<std::int64_t>(0, current.load() - base.load()); }
