#include "common/gguf/mapping_fault.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/gguf/mapped_file.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::gguf {
namespace {

TEST(MappingFaultDeathTest, FileCutShortUnderItsReader_IsNamedAndEndsTheProcessBySignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const test::TempDir dir;
  const std::filesystem::path path = dir / "cut.gguf";
  std::ofstream(path) << std::string(1 << 16, 'x');
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().text();
  const auto read_behind_the_cut = [&] {
    explain_mapping_faults();
    std::filesystem::resize_file(path, 1);
    const volatile std::byte* last = &file->bytes().back();
    static_cast<void>(*last);
  };
  EXPECT_EXIT(read_behind_the_cut(), testing::KilledBySignal(SIGBUS), "cut\\.gguf: .*cut short");
}

}  // namespace
}  // namespace terrace::gguf
