#include "tests/unit/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> n_allocations = 0;
thread_local std::size_t n_of_this_thread = 0;
thread_local std::size_t bytes_of_this_thread = 0;

constexpr std::size_t kDefaultAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

void* counted(std::size_t size, std::size_t alignment) {
  ++n_allocations;
  ++n_of_this_thread;
  bytes_of_this_thread += size;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = counted(size, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

std::size_t terrace::test::allocations() { return n_allocations; }
std::size_t terrace::test::allocations_of_this_thread() { return n_of_this_thread; }
std::size_t terrace::test::allocated_bytes_of_this_thread() { return bytes_of_this_thread; }

// Not inlined: the compiler would see one function's memory given to another's free, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted_or_throw(size, kDefaultAlignment); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size, kDefaultAlignment);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
