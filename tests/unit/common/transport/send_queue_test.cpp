#include "common/transport/send_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace terrace::transport {
namespace {

Part part(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text(std::span<const Part> parts) {
  std::string all;
  for (const Part p : parts) all.append(reinterpret_cast<const char*>(p.data()), p.size());
  return all;
}

TEST(SendQueue, BytesLeaveInOrder_HoweverManyAreWrittenAtOnce) {
  const std::string abc = "abc", d = "d", ef = "ef";
  const std::vector<Part> first{part(abc), {}, part(d)}, second{part(ef)};
  const std::string all = "abcdefabcdefabcdef";
  for (std::size_t step = 1; step <= all.size(); ++step) {
    SendQueue queue(8);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(queue.push(first).ok());
      ASSERT_TRUE(queue.push(second).ok());
    }
    std::string written;
    std::uint64_t frames = 0;
    while (queue.has_unsent()) {
      std::array<Part, 2> out;
      const std::string next = text(std::span(out).first(queue.gather(out))).substr(0, step);
      ASSERT_FALSE(next.empty());
      written += next;
      frames += queue.consume(next.size());
    }
    EXPECT_EQ(written, all) << "in steps of " << step;
    EXPECT_EQ(frames, 6u);
  }
}

TEST(SendQueue, OpenUntilReported) {
  const std::string abc = "abc";
  const std::vector<Part> parts{part(abc)};
  SendQueue queue(2);
  EXPECT_EQ(*queue.push(parts), 1u);
  EXPECT_EQ(*queue.push(parts), 2u);
  EXPECT_EQ(queue.consume(6), 2u);
  EXPECT_EQ(queue.push(parts).error().code(), ErrorCode::kBusy);
  EXPECT_EQ(queue.next_sent(), 1u);
  EXPECT_EQ(*queue.push(parts), 3u);
  EXPECT_EQ(queue.next_sent(), 2u);
  EXPECT_EQ(queue.next_sent(), std::nullopt);
}

TEST(SendQueue, GiveUp_EndsEveryOpenSendOnce) {
  const std::string abc = "abc";
  const std::vector<Part> parts{part(abc)};
  SendQueue queue(4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.push(parts).ok());
  queue.consume(4);
  queue.give_up();
  EXPECT_FALSE(queue.has_unsent());
  for (SendTicket ticket = 1; ticket <= 3; ++ticket) EXPECT_EQ(queue.next_sent(), ticket);
  EXPECT_FALSE(queue.has_sent());
}

}  // namespace
}  // namespace terrace::transport
