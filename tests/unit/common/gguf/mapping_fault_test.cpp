#include "common/gguf/mapping_fault.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "common/base/block_signals.h"
#include "common/gguf/mapped_file.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::gguf {
namespace {

// On a thread that starts with signals blocked, as those of the programs do, and on main()'s.
class MappingFaultDeathTest : public ::testing::TestWithParam<bool> {};

TEST_P(MappingFaultDeathTest, FileCutShortUnderItsReader_IsNamedAndEndsTheProcessBySignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const test::TempDir dir;
  const std::filesystem::path path = dir / "cut.gguf";
  std::ofstream(path) << std::string(1 << 16, 'x');
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().text();
  const auto read_behind_the_cut = [&] {
    explain_mapping_faults();
    std::filesystem::resize_file(path, 1);
    const auto read = [&] {
      const volatile std::byte* last = &file->bytes().back();
      static_cast<void>(*last);
    };
    if (!GetParam()) return read();
    const BlockSignals blocked;
    std::thread(read).join();
  };
  EXPECT_EXIT(read_behind_the_cut(), testing::KilledBySignal(SIGBUS), "cut\\.gguf: .*cut short");
}
INSTANTIATE_TEST_SUITE_P(Threads, MappingFaultDeathTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Worker" : "Main"; });

}  // namespace
}  // namespace terrace::gguf
