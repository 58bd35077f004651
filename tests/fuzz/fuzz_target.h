// What a fuzz target is: a decoder of foreign bytes, and seeds for it. One .cpp a target implements both functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <vector>

namespace terrace::fuzz {

// Decodes `input` and checks what the decoder promises of what it accepts; a broken promise ends the program. `input`
// begins at a multiple of 16, and a sanitizer sees each byte read beyond it.
void run_target(std::span<const std::byte> input);

// Lawful inputs to start from; the same each time. tests/fuzz/corpus/<target> holds them as files.
struct Seed {
  std::string name;
  std::vector<std::byte> bytes;
};
std::vector<Seed> make_seeds();

// As the folder of its corpus is called. target_name.cpp has it.
std::string target_name();

template <class Range>
std::vector<std::byte> to_bytes(const Range& range) {
  const auto bytes = std::as_bytes(std::span(range));
  return {bytes.begin(), bytes.end()};
}

// Runs the target on a copy of the input that is exactly as long.
inline void run_on_copy(std::span<const std::byte> input) {
  constexpr std::align_val_t kAlignment{16};
  auto* copy = static_cast<std::byte*>(::operator new(input.size(), kAlignment));
  if (!input.empty()) std::memcpy(copy, input.data(), input.size());
  run_target({copy, input.size()});
  ::operator delete(copy, kAlignment);
}

}  // namespace terrace::fuzz
