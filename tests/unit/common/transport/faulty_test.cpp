// That each fault does what its script says, to the frame that it names and no other.
#include "common/transport/faulty/faulty.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"
#include "common/wire/messages.h"
#include "tests/contract/transport_harness.h"

namespace terrace::transport {
namespace {

using namespace test;
using testing::HasSubstr;

class ManualClock final : public FaultClock {
 public:
  TimePoint now() const override { return now_; }
  void advance(std::chrono::nanoseconds by) { now_ += by; }

 private:
  TimePoint now_{};
};

// A link whose client end is wrapped: what it sends and what it receives has the script's faults.
struct FaultyLink {
  explicit FaultyLink(FaultScript script, std::shared_ptr<Transport> inner = std::make_shared<LoopbackTransport>(),
                      const FaultClock* clock = nullptr)
      : plain(std::move(inner)), faulty(plain, std::move(script), clock), listener(listen()) {
    connect(client, server);
  }

  std::unique_ptr<Listener> listen() {
    auto made = plain->listen("127.0.0.1:0", {});
    EXPECT_TRUE(made.ok()) << made.error().text();
    return std::move(made).value();
  }
  void connect(End& here, End& there) {
    auto connection = faulty.connect(listener->address(), {}, 5s);
    ASSERT_TRUE(connection.ok()) << connection.error().text();
    here.connection = std::move(*connection);
    there.connection = accept_one(*listener);
  }
  bool pump(const std::function<bool()>& done) { return test::pump({&client, &server}, done); }

  std::shared_ptr<Transport> plain;
  FaultyTransport faulty;
  std::unique_ptr<Listener> listener;
  End client, server;
};

FaultScript one(const Fault& fault) { return {.seed = 1, .faults = {fault}, .delay = {}, .jitter = {}}; }

std::vector<std::unique_ptr<TestFrame>> frames(std::size_t n, std::size_t bytes = 160) {
  std::vector<std::unique_ptr<TestFrame>> made;
  for (std::size_t i = 0; i < n; ++i) made.push_back(make_frame(i + 1, bytes));
  return made;
}

void send_all(End& end, const std::vector<std::unique_ptr<TestFrame>>& made) {
  for (const auto& frame : made) (void)end->send(frame->parts());
}

std::shared_ptr<Transport> transport(bool tcp) {
  if (tcp) return std::make_shared<TcpTransport>();
  return std::make_shared<LoopbackTransport>();
}

class FaultyOver : public testing::TestWithParam<bool> {};  // tcp, else loopback
INSTANTIATE_TEST_SUITE_P(Transports, FaultyOver, testing::Bool(),
                         [](const auto& test) { return test.param ? "Tcp" : "Loopback"; });

// ---- cuts ----------------------------------------------------------------------------------------------------------

TEST_P(FaultyOver, CutAtEveryFrameEachWay_FramesBeforeArriveAndBothEndsClose) {
  constexpr std::size_t kFrames = 4;
  const auto made = frames(kFrames);
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    for (std::uint64_t nth = 0; nth < kFrames; ++nth) {
      FaultyLink link(one({.kind = Fault::Kind::kCut, .direction = direction, .frame = nth}), transport(GetParam()));
      End& sender = direction == Direction::kOut ? link.client : link.server;
      End& receiver = direction == Direction::kOut ? link.server : link.client;
      send_all(sender, made);
      ASSERT_TRUE(link.pump([&] { return link.client.closed && link.server.closed; }));
      EXPECT_EQ(receiver.received, nth) << static_cast<int>(direction);
      for (std::size_t i = 0; i < receiver.frames.size(); ++i) EXPECT_TRUE(receiver.frames[i] == made[i]->contiguous());
      EXPECT_EQ(link.client->close_reason().code(), ErrorCode::kPeerGone);
      EXPECT_THAT(link.client->close_reason().text(), HasSubstr(fmt::format("frame {}", nth)));
      EXPECT_EQ(link.server->close_reason().code(), ErrorCode::kPeerGone);
      EXPECT_EQ(link.faulty.fired(), 1u);
    }
  }
}

TEST(Faulty, CutInsideAFrame_ExactlySoManyBytesArriveBeforeTheEnd) {
  for (const std::uint64_t bytes : {1u, 63u, 64u, 65u, 159u}) {
    FaultyLink link(one({.kind = Fault::Kind::kCut, .direction = Direction::kOut, .frame = 1, .bytes = bytes}),
                    transport(true));
    const auto made = frames(3);
    send_all(link.client, made);
    ASSERT_TRUE(link.pump([&] { return link.client.closed && link.server.closed; }));
    EXPECT_EQ(link.server.received, 1u);
    EXPECT_THAT(link.server->close_reason().text(),
                HasSubstr(fmt::format("closed by the peer after {} bytes of a frame", bytes)));
    EXPECT_EQ(link.client.sent.size(), 3u) << "every send ends";
  }
}

TEST_P(FaultyOver, CutEverywhere_EndsOtherConnectionsTooAndNewOnesAreWhole) {
  FaultyLink link(one({.kind = Fault::Kind::kCut, .frame = 0, .everywhere = true}), transport(GetParam()));
  End client, server;
  link.connect(client, server);
  const auto made = frames(1);
  send_all(link.client, made);
  EXPECT_TRUE(wait(*client.connection, kPatience)) << "the other connection has something to say";
  ASSERT_TRUE(pump({&client, &server, &link.client, &link.server},
                   [&] { return client.closed && server.closed && link.client.closed && link.server.closed; }));
  EXPECT_THAT(client->close_reason().text(), HasSubstr("on another connection"));

  End fresh, fresh_server;
  link.connect(fresh, fresh_server);
  send_all(fresh, made);
  EXPECT_TRUE(pump({&fresh, &fresh_server}, [&] { return fresh_server.received == 1; }));
}

// ---- frames that are not what was sent -----------------------------------------------------------------------------

// Received frame `nth` of `made` as the far end sees it under `fault`, all others untouched.
std::vector<std::byte> changed_frame(const Fault& fault, std::size_t nth) {
  const auto made = frames(3);
  FaultyLink link(one(fault));
  End& sender = *fault.direction == Direction::kOut ? link.client : link.server;
  End& receiver = *fault.direction == Direction::kOut ? link.server : link.client;
  send_all(sender, made);
  EXPECT_TRUE(link.pump([&] { return receiver.received == 3 && sender.sent.size() == 3; }));
  for (std::size_t i = 0; i < receiver.frames.size(); ++i)
    EXPECT_EQ(receiver.frames[i] == made[i]->contiguous(), i != nth) << i;
  return receiver.frames.at(nth);
}

TEST(Faulty, CorruptedBit_IsTheOneAndTheChecksumFindsIt) {
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    const std::uint64_t bit = 8 * 100 + 3;
    auto bytes = changed_frame({.kind = Fault::Kind::kCorrupt, .direction = direction, .frame = 1, .bit = bit}, 1);
    EXPECT_FALSE(wire::decode_frame(bytes).ok());
    bytes[100] ^= std::byte{8};
    EXPECT_TRUE(bytes == TestFrame(2, 160).contiguous());
  }
}

TEST(Faulty, CorruptedBitWithoutANumber_IsDrawnFromTheSeed) {
  const auto drawn = [](std::uint64_t seed) {
    FaultScript script = one({.kind = Fault::Kind::kCorrupt, .direction = Direction::kIn});
    script.seed = seed;
    FaultyLink link(script);
    const auto made = frames(1);
    send_all(link.server, made);
    EXPECT_TRUE(link.pump([&] { return link.client.received == 1; }));
    return link.client.frames.at(0);
  };
  EXPECT_TRUE(drawn(1) == drawn(1));
  EXPECT_FALSE(drawn(1) == drawn(2));
}

TEST(Faulty, TruncatedOnTheWayIn_IsShorter) {
  const Fault fault{.kind = Fault::Kind::kTruncate, .direction = Direction::kIn, .frame = 2, .bytes = 48};
  EXPECT_EQ(changed_frame(fault, 2).size(), 160u - 48u);
}

TEST(Faulty, DroppedFrame_TheOthersArriveAndItsSendEnds) {
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    FaultyLink link(one({.kind = Fault::Kind::kDrop, .direction = direction, .frame = 1}));
    End& sender = direction == Direction::kOut ? link.client : link.server;
    End& receiver = direction == Direction::kOut ? link.server : link.client;
    const auto made = frames(3);
    send_all(sender, made);
    ASSERT_TRUE(link.pump([&] { return receiver.received == 2 && sender.sent.size() == 3; }));
    EXPECT_TRUE(receiver.frames[1] == made[2]->contiguous());
  }
}

TEST(Faulty, StarvedDirection_FramesComeWithoutTheirCreditOnly) {
  const auto with_credit = [](wire::FrameBuilder& builder, std::uint64_t sequence) {
    builder.begin({.type = wire::FrameType::kBusy, .sequence = sequence, .credit_frames = 3, .credit_bytes = 4096});
    wire::add_busy(builder, {.expected_us = 17});
    return builder.finish();
  };
  FaultyLink link(one({.kind = Fault::Kind::kStarve, .direction = Direction::kIn, .frame = 1}));
  std::array<wire::FrameBuilder, 3> builders;
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(link.server->send(with_credit(builders[i], i + 1)).ok());
  ASSERT_TRUE(link.pump([&] { return link.client.received == 3; }));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto frame = wire::decode_frame(link.client.frames[i]);
    ASSERT_TRUE(frame.ok()) << frame.error().text();
    EXPECT_EQ(frame->header.credit_frames, i == 0 ? 3u : 0u);
    EXPECT_EQ(frame->header.credit_bytes, i == 0 ? 4096u : 0u);
    EXPECT_EQ(frame->header.sequence, i + 1);
    EXPECT_EQ(wire::read_busy(*frame)->expected_us, 17u);
  }
}

// ---- time ----------------------------------------------------------------------------------------------------------

TEST(Faulty, StalledDirection_NothingPassesTheOtherGoesOnAndCloseEndsIt) {
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    FaultyLink link(one({.kind = Fault::Kind::kStall, .direction = direction, .frame = 1}));
    End& sender = direction == Direction::kOut ? link.client : link.server;
    End& receiver = direction == Direction::kOut ? link.server : link.client;
    const auto made = frames(3);
    send_all(sender, made);
    send_all(receiver, made);
    ASSERT_TRUE(link.pump([&] { return receiver.received == 1 && sender.received == 3; }));
    pump_briefly({&link.client, &link.server});
    EXPECT_EQ(receiver.received, 1u);
    EXPECT_FALSE(wait(*link.client.connection, 20ms)) << "what never comes is no reason to wake up";
    link.client->close();
    ASSERT_TRUE(link.pump([&] { return link.client.closed && link.server.closed; }));
    EXPECT_EQ(link.client.sent.size(), 3u);
  }
}

TEST(Faulty, StalledPeerThatDies_StaysSilent) {
  FaultyLink link(one({.kind = Fault::Kind::kStall, .direction = Direction::kIn}));
  const auto made = frames(1);
  send_all(link.server, made);
  ASSERT_TRUE(link.pump([&] { return link.server.sent.size() == 1; }));
  link.server.connection.reset();
  pump_briefly({&link.client});
  EXPECT_FALSE(link.client.closed) << "the end of the stream would have passed the stalled frame";
  EXPECT_FALSE(wait(*link.client.connection, 20ms));
}

TEST(Faulty, DelayedFrames_ComeAtTheirTimeByTheInjectedClock) {
  ManualClock clock;
  FaultScript script;
  script.delay = {25us, 100us};
  FaultyLink link(script, std::make_shared<LoopbackTransport>(), &clock);
  const auto made = frames(2);
  send_all(link.client, made);
  send_all(link.server, made);
  const auto poll_both = [&] {
    link.client.poll();
    link.server.poll();
  };
  poll_both();
  EXPECT_EQ(link.server.received, 0u);
  clock.advance(25us - 1ns);
  poll_both();
  EXPECT_EQ(link.server.received, 0u);
  clock.advance(1ns);
  poll_both();
  EXPECT_EQ(link.server.received, 2u);
  clock.advance(75us - 1ns);
  poll_both();
  EXPECT_EQ(link.client.received, 0u);
  clock.advance(1ns);
  poll_both();
  EXPECT_EQ(link.client.received, 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(link.client.frames[i] == made[i]->contiguous());
}

class OneWayDelay : public testing::TestWithParam<std::chrono::microseconds> {};
INSTANTIATE_TEST_SUITE_P(Faulty, OneWayDelay, testing::Values(25us, 60us, 100us),
                         [](const auto& test) { return fmt::format("{}us", test.param.count()); });

// As emulated links have it: each end holds what comes in, so that no sender has to poll for its frames to leave.
TEST_P(OneWayDelay, BothEndsHoldWhatComesIn_ARoundTripTakesTwiceAsLongToTheNanosecond) {
  constexpr int kRoundTrips = 5;
  ManualClock clock;
  FaultScript script;
  script.delay = {0us, GetParam()};
  FaultyTransport both(std::make_shared<LoopbackTransport>(), script, &clock);
  const auto listener = both.listen("127.0.0.1:0", {});
  ASSERT_TRUE(listener.ok()) << listener.error().text();
  End client, server;
  auto connection = both.connect((*listener)->address(), {}, 5s);
  ASSERT_TRUE(connection.ok()) << connection.error().text();
  client.connection = std::move(*connection);
  server.connection = accept_one(**listener);

  const auto made = frames(1);
  const auto one_way = [&](End& from, End& to) {
    const std::size_t before = to.received;
    send_all(from, made);
    for (const auto step : {0ns, GetParam() - 1ns}) {
      clock.advance(step);
      from.poll();
      to.poll();
      EXPECT_EQ(to.received, before) << "too early";
    }
    clock.advance(1ns);
    to.poll();
    EXPECT_EQ(to.received, before + 1) << "too late";
  };
  const auto begin = clock.now();
  for (int i = 0; i < kRoundTrips; ++i) {
    one_way(client, server);
    one_way(server, client);
  }
  EXPECT_EQ(clock.now() - begin, 2 * kRoundTrips * GetParam());
}

TEST(Faulty, DelayedFrame_WakesItsWaiter) {
  FaultScript script;
  script.delay = {0us, 2ms};
  FaultyLink link(script, transport(true));
  const auto made = frames(3);
  send_all(link.server, made);
  ASSERT_TRUE(link.pump([&] { return link.client.received == 3; }));
  EXPECT_FALSE(wait(*link.client.connection, 5ms));
}

TEST(Faulty, OneDelayedFrame_HoldsThoseBehindItButNotTheOtherWay) {
  ManualClock clock;
  FaultyLink link(
      one({.kind = Fault::Kind::kDelay, .direction = Direction::kIn, .frame = 1, .delay = std::chrono::hours(1)}),
      std::make_shared<LoopbackTransport>(), &clock);
  const auto made = frames(3);
  send_all(link.server, made);
  send_all(link.client, made);
  ASSERT_TRUE(link.pump([&] { return link.server.received == 3; }));
  EXPECT_EQ(link.client.received, 1u);
  clock.advance(std::chrono::hours(1));
  ASSERT_TRUE(link.pump([&] { return link.client.received == 3; }));
}

TEST(Faulty, Jitter_TheSameSeedGivesTheSameOrderAcrossConnections) {
  const auto order = [](std::uint64_t seed) {
    ManualClock clock;
    FaultScript script;
    script.seed = seed;
    script.jitter = {0us, 100us};
    FaultyLink link(script, std::make_shared<LoopbackTransport>(), &clock);
    std::array<End, 8> here, there;
    const auto made = frames(1);
    for (std::size_t i = 0; i < here.size(); ++i) {
      link.connect(here[i], there[i]);
      send_all(there[i], made);
    }
    std::vector<std::size_t> came;
    for (int us = 0; us <= 110; ++us, clock.advance(1us))
      for (std::size_t i = 0; i < here.size(); ++i)
        if (here[i].poll() > 0) came.push_back(i);
    EXPECT_EQ(came.size(), here.size());
    return came;
  };
  EXPECT_EQ(order(4711), order(4711));
  EXPECT_NE(order(4711), order(4712));
}

}  // namespace
}  // namespace terrace::transport
