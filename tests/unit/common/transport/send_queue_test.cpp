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

// The tickets that are reported, in a call of at most `most` events.
std::vector<SendTicket> reported(SendQueue& queue, std::size_t most = 8) {
  std::vector<Event> events(most);
  events.resize(queue.report_sent(events));
  std::vector<SendTicket> tickets;
  for (const Event& event : events) {
    EXPECT_EQ(event.kind, Event::Kind::kSent);
    tickets.push_back(event.ticket);
  }
  return tickets;
}
using Tickets = std::vector<SendTicket>;

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
  EXPECT_EQ(reported(queue, 1), Tickets{1});
  EXPECT_EQ(*queue.push(parts), 3u);
  EXPECT_EQ(reported(queue), Tickets{2});
  EXPECT_EQ(reported(queue), Tickets{});
}

TEST(SendQueue, GiveUp_EndsEveryOpenSendOnce) {
  const std::string abc = "abc";
  const std::vector<Part> parts{part(abc)};
  SendQueue queue(4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.push(parts).ok());
  queue.consume(4);
  queue.give_up();
  EXPECT_FALSE(queue.has_unsent());
  EXPECT_EQ(reported(queue), (Tickets{1, 2, 3}));
  EXPECT_FALSE(queue.has_sent());
}

TEST(SendQueue, Closed_ComesAfterTheLastSentAndOnlyWhereThereIsRoom) {
  const std::string abc = "abc";
  const std::vector<Part> parts{part(abc)};
  SendQueue queue(4);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(queue.push(parts).ok());
  queue.give_up();
  std::array<Event, 1> out;
  EXPECT_EQ(reported(queue, 1), Tickets{1});
  EXPECT_FALSE(queue.report_closed(out)) << "ticket 2 is open";
  EXPECT_EQ(reported(queue, 1), Tickets{2});
  EXPECT_FALSE(queue.report_closed({}));
  EXPECT_TRUE(queue.report_closed(out));
  EXPECT_EQ(out[0].kind, Event::Kind::kClosed);
}

}  // namespace
}  // namespace terrace::transport
