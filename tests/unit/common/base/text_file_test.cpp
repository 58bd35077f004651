#include "common/base/text_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "common/base/descriptor.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace {
namespace text_file_test {

using ::testing::HasSubstr;

Error refused(const std::filesystem::path& file, std::size_t max_bytes = 100) {
  const auto read = read_text_file(file, max_bytes);
  EXPECT_FALSE(read.ok());
  return read.ok() ? Error(ErrorCode::kInternal, "it was read") : read.error();
}

TEST(TextFile, WholeFile_BytesAsTheyAre) {
  const test::TempDir dir;
  std::string bytes(200'000, 'x');
  bytes[0] = '\0';
  bytes.back() = '\xff';
  test::write_file(dir / "a", bytes);
  EXPECT_EQ(read_text_file(dir / "a").value(), bytes);
  EXPECT_EQ(read_text_file(dir / "a", bytes.size()).value(), bytes);
  EXPECT_THAT(refused(dir / "a", bytes.size() - 1).text(), HasSubstr("a: is longer than 199999 bytes"));
}

TEST(TextFile, WhatIsNotThereAndWhatIsNoFile_AreNamed) {
  const test::TempDir dir;
  const Error absent = refused(dir / "none");
  EXPECT_EQ(absent.code(), ErrorCode::kNotFound);
  EXPECT_THAT(absent.text(), HasSubstr("none: cannot be opened: No such file"));
  const Error folder = refused(dir.path());
  EXPECT_EQ(folder.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(folder.text(), HasSubstr("is a directory"));
}

// Nothing is mapped at address 0, so that this file opens and does not read.
TEST(TextFile, ReadThatFails_IsNoEmptyFile) {
  const Error error = refused("/proc/self/mem");
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_THAT(error.text(), HasSubstr("/proc/self/mem: cannot be read: Input/output error"));
}

TEST(TextFile, Pipe_IsReadToItsEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor out(ends[0]);
  {
    const Descriptor in(ends[1]);
    ASSERT_EQ(::write(in.get(), "abc", 3), 3);
  }
  EXPECT_EQ(read_text(out.get(), "pipe").value(), "abc");
}

}  // namespace text_file_test
}  // namespace terrace
