// terrace-fuzz-seeds-<target> DIR: writes the target's seeds as files, for a fuzzer to start from.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz_target.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIR\n", argv[0]);
    return 2;
  }
  const std::filesystem::path dir = argv[1];
  std::filesystem::create_directories(dir);
  for (const terrace::fuzz::Seed& seed : terrace::fuzz::make_seeds()) {
    std::ofstream out(dir / seed.name, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(seed.bytes.data()), static_cast<std::streamsize>(seed.bytes.size()));
    if (!out) {
      std::fprintf(stderr, "%s cannot be written\n", (dir / seed.name).c_str());
      return 1;
    }
  }
  return 0;
}
