// Where tests find their data: our own below tests/data and deploy/demo, third-party vectors below
// TERRACE_TEST_VECTORS (default: ../shared beside the checkout). A test whose third-party data is absent is skipped
// by name.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::test {

inline std::filesystem::path source_dir() { return TERRACE_SOURCE_DIR; }
inline std::filesystem::path data_dir() { return source_dir() / "tests" / "data"; }
inline std::filesystem::path demo_model() { return source_dir() / "deploy" / "demo" / "demo-story-42m-q4_k_m.gguf"; }
// Where the programs under test lie: terrace, terrace-node, terrace-random-model.
inline std::filesystem::path binary_dir() { return TERRACE_BINARY_DIR; }

// Third-party vectors. The path may not exist: then GTEST_SKIP() with this path in the message.
inline std::filesystem::path third_party_dir() {
  if (const char* dir = std::getenv("TERRACE_TEST_VECTORS")) return dir;
  return source_dir() / ".." / "shared";
}

// The file's bytes as an array of T; throws (the test fails) when it cannot be read.
template <class T>
std::vector<T> read_array(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(values.size() * sizeof(T)),
            reinterpret_cast<char*>(values.data()));
  return values;
}

}  // namespace terrace::test
