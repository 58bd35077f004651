// The target under libFuzzer (-DTERRACE_FUZZ=ON).
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  terrace::fuzz::run_on_copy(std::as_bytes(std::span(data, size)));
  return 0;
}
