#include "coordinator/terminal/input_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/common/temp_dir.h"

namespace terrace::terminal {
namespace {

using Lines = std::vector<std::string>;
using terrace::test::read_file;
using terrace::test::TempDir;
using terrace::test::write_file;

unsigned mode_of(const std::filesystem::path& file) {
  struct stat status {};
  EXPECT_EQ(::stat(file.c_str(), &status), 0) << file;
  return status.st_mode & 0777;
}

TEST(StateFile, FollowsTheBaseDirectorySpecification) {
  const auto of = [](std::map<std::string, std::string> variables) {
    return state_file(Environment(std::move(variables)), "chat_history").string();
  };
  EXPECT_EQ(of({{"XDG_STATE_HOME", "/s"}, {"HOME", "/h"}}), "/s/terrace/chat_history");
  EXPECT_EQ(of({{"HOME", "/h"}}), "/h/.local/state/terrace/chat_history");
  EXPECT_EQ(of({{"XDG_STATE_HOME", "relative"}, {"HOME", "/h"}}), "/h/.local/state/terrace/chat_history");
  EXPECT_EQ(of({{"XDG_STATE_HOME", "relative"}}), "");
}

TEST(InputHistory, LinesComeBack_FromAFileForItsOwnerAlone) {
  const TempDir dir;
  const auto file = dir.path() / "deep" / "history";
  InputHistory first = InputHistory::open(file).value();
  EXPECT_EQ(first.lines(), Lines());
  for (const char* line : {"one", "zwei ä 猫", "zwei ä 猫", "", "tab\tand\nnewline"}) EXPECT_TRUE(first.add(line).ok());
  EXPECT_EQ(mode_of(file), 0600u) << "before anything opens it again, which would make it private";
  EXPECT_EQ(InputHistory::open(file).value().lines(), Lines({"one", "zwei ä 猫", "tab and newline"}));
}

TEST(InputHistory, TwoPrograms_ShareTheFile) {
  const TempDir dir;
  InputHistory a = InputHistory::open(dir / "history").value(), b = InputHistory::open(dir / "history").value();
  EXPECT_TRUE(a.add("a1").ok());
  EXPECT_TRUE(b.add("b1").ok());
  EXPECT_TRUE(a.add("a2").ok());
  EXPECT_EQ(read_file(dir / "history"), "a1\nb1\na2\n");
}

TEST(InputHistory, AFileThatOthersCanRead_IsMadePrivate) {
  const TempDir dir;
  write_file(dir / "history", "old\n");
  ::chmod((dir / "history").c_str(), 0644);
  EXPECT_EQ(InputHistory::open(dir / "history").value().lines(), Lines({"old"}));
  EXPECT_EQ(mode_of(dir / "history"), 0600u);
}

TEST(InputHistory, ALongFile_IsCutToTheNewestLines) {
  const TempDir dir;
  std::string bytes;
  for (int i = 0; i < 2001; ++i) bytes += std::to_string(i) + "\n";
  write_file(dir / "history", bytes);
  const InputHistory history = InputHistory::open(dir / "history").value();
  ASSERT_EQ(history.lines().size(), InputHistory::kMostLines);
  EXPECT_EQ(history.lines().front(), "1001");
  EXPECT_EQ(history.lines().back(), "2000");
  EXPECT_EQ(InputHistory::open(dir / "history").value().lines(), history.lines());
  EXPECT_LT(std::filesystem::file_size(dir / "history"), bytes.size());
  EXPECT_EQ(mode_of(dir / "history"), 0600u);
}

// Any bytes: what is loaded is UTF-8 without control characters, however the file came about.
TEST(InputHistory, AHugeFileOfAnyBytes_GivesLinesThatCanBeShown) {
  const TempDir dir;
  std::string bytes(5 << 20, '\0');
  std::uint32_t state = 7;
  for (char& c : bytes) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  write_file(dir / "history", bytes);
  const InputHistory history = InputHistory::open(dir / "history").value();
  EXPECT_EQ(history.lines().size(), InputHistory::kMostLines);
  for (const std::string& line : history.lines())
    for (const char c : line) ASSERT_FALSE(static_cast<unsigned char>(c) < 0x20 || c == 0x7f);
}

TEST(InputHistory, WhatIsNoFile_IsRefused_AndNothingHangs) {
  const TempDir dir;
  EXPECT_FALSE(InputHistory::open(dir.path()).ok());
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const auto refused = InputHistory::open(dir / "pipe");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
}

TEST(InputHistory, AFileThatCannotBeWritten_IsAnError_AndTheLineIsKept) {
  const TempDir dir;
  InputHistory history = InputHistory::open(dir.path() / "folder" / "history").value();
  write_file(dir / "folder", "");  // now a file
  const Status added = history.add("kept");
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().code(), ErrorCode::kIo);
  EXPECT_EQ(history.lines(), Lines({"kept"}));
}

}  // namespace
}  // namespace terrace::terminal
