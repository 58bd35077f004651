// Notes and progress with a clock of the test's own; what a terminal shows is played back.
#include "coordinator/terminal/notes.h"

#include <gtest/gtest.h>

#include <thread>

#include "coordinator/terminal/progress_text.h"

namespace terrace::terminal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<std::string>;

constexpr std::uint64_t kMiB = 1 << 20;

// A terminal that knows what Notes writes: newline, carriage return, erase to the end of the line, cursor up.
class Screen {
 public:
  void write(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') {
        ++row_;
        column_ = 0;
        if (row_ == lines_.size()) lines_.emplace_back();
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text.substr(i).starts_with("\x1b[K")) {
        lines_[row_].resize(std::min(column_, lines_[row_].size()));
        i += 2;
      } else if (text.substr(i).starts_with("\x1b[1A")) {
        ASSERT_GT(row_, 0u) << "the cursor leaves the screen";
        --row_;
        i += 3;
      } else {
        ASSERT_NE(text[i], '\x1b') << "an unknown sequence";
        lines_[row_].resize(std::max(lines_[row_].size(), column_ + 1), ' ');
        lines_[row_][column_++] = text[i];
      }
    }
  }
  // Without the empty lines at the end.
  Lines lines() const {
    Lines shown = lines_;
    while (!shown.empty() && shown.back().empty()) shown.pop_back();
    return shown;
  }

 private:
  Lines lines_ = {""};
  std::size_t row_ = 0, column_ = 0;
};

class NotesTest : public ::testing::Test {
 protected:
  Notes notes(bool live, bool quiet = false) {
    return Notes({.quiet = quiet,
                  .live = live,
                  .write =
                      [this](std::string_view text) {
                        written_ += text;
                        screen_.write(text);
                      },
                  .now = [this] { return now_; },
                  .columns = [this] { return columns_; }});
  }
  void pass(milliseconds time) { now_ += time; }

  std::chrono::steady_clock::time_point now_{};
  std::size_t columns_ = 80;
  Screen screen_;
  std::string written_;
};

TEST(ProgressText, BytesRateAndTimeLeft) {
  EXPECT_EQ(progress_text("box1:9000", {1288490189, 5690831667, seconds(10)}),
            "box1:9000: 1.2G of 5.3G, 22%, 122.9M/s, 34s left");
  EXPECT_EQ(progress_text("x", {0, 0, seconds(9)}), "x: waiting");
  EXPECT_EQ(progress_text("x", {0, 4 * kMiB, seconds(9)}), "x: 0B of 4M, 0%");
  EXPECT_EQ(progress_text("x", {kMiB, 4 * kMiB, milliseconds(999)}), "x: 1M of 4M, 25%") << "no guess so early";
  EXPECT_EQ(progress_text("x", {4 * kMiB, 4 * kMiB, seconds(2)}), "x: 4M of 4M, 100%, 2M/s");
  EXPECT_EQ(progress_text("x", {kMiB, 4 * kMiB, seconds(40)}), "x: 1M of 4M, 25%, 25.6K/s, 2m00s left");
  EXPECT_EQ(progress_text("x", {kMiB, 4 * kMiB, seconds(4000)}), "x: 1M of 4M, 25%, 262B/s, 3h20m left");
}

TEST(Fit, CutsBetweenCharacters) {
  EXPECT_EQ(fit("abc", 3), "abc");
  EXPECT_EQ(fit("abc", 2), "ab");
  EXPECT_EQ(fit("a猫b", 2), "a");
  EXPECT_EQ(fit("a猫b", 3), "a猫");
  EXPECT_EQ(fit("abc", 0), "");
}

TEST_F(NotesTest, IntoALog_LinesGoThereAndNothingIsWrittenOrDrawn) {
  Lines lines;
  Notes out({.live = true,
             .write = [this](std::string_view text) { written_ += text; },
             .line = [&](const std::string& line) { lines.push_back(line); },
             .now = [this] { return now_; },
             .columns = [] { return std::size_t{80}; }});
  auto task = out.begin("box1:9000");
  task->update(kMiB, 10 * kMiB);
  pass(seconds(3));
  task->update(5 * kMiB, 10 * kMiB);
  task.reset();
  out.print("{}: ready", "box1:9000");
  EXPECT_EQ(lines, Lines({"box1:9000: 5M of 10M, 50%, 1.7M/s, 3s left", "box1:9000: ready"}));
  EXPECT_EQ(written_, "");
}

TEST_F(NotesTest, Live_OneLineIsRedrawn_NotTooOften_AndGoesWithTheWork) {
  Notes out = notes(true);
  auto task = out.begin("box1:9000");
  EXPECT_EQ(screen_.lines(), Lines());
  task->update(kMiB, 10 * kMiB);
  EXPECT_EQ(screen_.lines(), Lines({"box1:9000: 1M of 10M, 10%"}));
  pass(milliseconds(99));
  task->update(2 * kMiB, 10 * kMiB);
  EXPECT_EQ(screen_.lines(), Lines({"box1:9000: 1M of 10M, 10%"})) << "redrawn within 100 ms";
  pass(milliseconds(1901));
  task->update(5 * kMiB, 10 * kMiB);
  EXPECT_EQ(screen_.lines(), Lines({"box1:9000: 5M of 10M, 50%, 2.5M/s, 2s left"}));
  task.reset();
  EXPECT_EQ(screen_.lines(), Lines());
  out.print("{}: ready", "box1:9000");
  EXPECT_EQ(screen_.lines(), Lines({"terrace: box1:9000: ready"}));
}

TEST_F(NotesTest, Live_LinesThatComeBetween_StandAboveAndWhole) {
  Notes out = notes(true);
  auto a = out.begin("a"), b = out.begin("b");
  a->update(kMiB, 4 * kMiB);
  pass(milliseconds(200));
  b->update(kMiB, 2 * kMiB);
  EXPECT_EQ(screen_.lines(), Lines({"a: 1M of 4M, 25%", "b: 1M of 2M, 50%", "in all: 2M of 6M, 33%"}));
  out.print("first");
  out.print("second");
  EXPECT_EQ(screen_.lines(), Lines({"terrace: first", "terrace: second", "a: 1M of 4M, 25%", "b: 1M of 2M, 50%",
                                    "in all: 2M of 6M, 33%"}));
  a.reset();
  EXPECT_EQ(screen_.lines(), Lines({"terrace: first", "terrace: second", "b: 1M of 2M, 50%"}));
  b.reset();
  EXPECT_EQ(screen_.lines(), Lines({"terrace: first", "terrace: second"}));
}

TEST_F(NotesTest, Live_ALineIsNeverWiderThanTheTerminal) {
  columns_ = 12;
  Notes out = notes(true);
  auto task = out.begin("box1:9000");
  task->update(kMiB, 10 * kMiB);
  EXPECT_EQ(screen_.lines(), Lines({"box1:9000: "})) << "a line of all columns would wrap";
  columns_ = 0;
  pass(seconds(1));
  task->update(kMiB, 10 * kMiB);
  task.reset();
  EXPECT_EQ(screen_.lines(), Lines());
}

TEST_F(NotesTest, Plain_ALineEachTenthOrEveryFiveSeconds_NoneOfShortWork) {
  Notes out = notes(false);
  auto task = out.begin("box1:9000");
  task->update(5 * kMiB, 10 * kMiB);
  pass(milliseconds(1999));
  task->update(6 * kMiB, 10 * kMiB);
  EXPECT_EQ(written_, "") << "work of less than two seconds";
  pass(milliseconds(1));
  task->update(6 * kMiB, 10 * kMiB);
  task->update(6 * kMiB + 1, 10 * kMiB);
  EXPECT_EQ(written_, "terrace: box1:9000: 6M of 10M, 60%, 3M/s, 1s left\n");
  written_.clear();
  pass(milliseconds(4999));
  task->update(6 * kMiB + 2, 10 * kMiB);
  EXPECT_EQ(written_, "");
  pass(milliseconds(1));
  task->update(6 * kMiB + 2, 10 * kMiB);
  EXPECT_EQ(written_, "terrace: box1:9000: 6M of 10M, 60%, 877.7K/s, 5s left\n");
  written_.clear();
  task->update(7 * kMiB, 10 * kMiB);
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\n'), 1);
  EXPECT_EQ(written_.find('\x1b'), std::string::npos);
  task.reset();
}

TEST_F(NotesTest, Quiet_NothingAtAll) {
  for (const bool live : {false, true}) {
    Notes out = notes(live, true);
    auto task = out.begin("box1:9000");
    pass(seconds(10));
    task->update(kMiB, 4 * kMiB);
    out.print("a line");
  }
  EXPECT_EQ(written_, "");
}

TEST_F(NotesTest, MoreThanTheTotal_IsTheTotal) {
  Notes out = notes(true);
  auto task = out.begin("a node that lies");
  task->update(UINT64_MAX, kMiB);
  EXPECT_EQ(screen_.lines(), Lines({"a node that lies: 1M of 1M, 100%"}));
}

// Each thread's lines arrive whole: the screen would show a mixed one.
TEST_F(NotesTest, ManyThreads_LinesStayWhole) {
  Notes out = notes(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&out, t] {
      auto task = out.begin(std::string(3, static_cast<char>('a' + t)));
      for (std::uint64_t i = 1; i <= 200; ++i) {
        task->update(i, 200);
        if (i % 50 == 0) out.print("{}", std::string(10, static_cast<char>('a' + t)));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const Lines lines = screen_.lines();
  EXPECT_EQ(lines.size(), 16u);
  for (const std::string& line : lines)
    EXPECT_TRUE(line.size() == 19 && line == "terrace: " + std::string(10, line.back())) << line;
}

}  // namespace
}  // namespace terrace::terminal
