// What every transport owes its users, whatever carries the bytes. A new transport is one more line in transports.h.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "tests/contract/transport_harness.h"
#include "tests/contract/transports.h"

namespace terrace::transport {
namespace {

using namespace test;
using testing::HasSubstr;

constexpr std::size_t kMega = std::size_t{1} << 20;

class TransportContract : public testing::TestWithParam<TransportCase> {
 protected:
  Link connect(const Options& client = {}, const Options& server = {}) {
    return connect_over(GetParam(), client, server);
  }
  // As it travels.
  std::uint64_t on_link(std::uint64_t frame_bytes) const { return frame_bytes + GetParam().seal_bytes; }
  std::string refusal(std::uint64_t frame_bytes, std::uint64_t most) const {
    return fmt::format("{} bytes, at most {}", on_link(frame_bytes), on_link(most));
  }
};

INSTANTIATE_TEST_SUITE_P(All, TransportContract, testing::ValuesIn(kTransports),
                         [](const auto& test) { return std::string(test.param.name); });

std::vector<SendTicket> tickets_up_to(std::size_t n) {
  std::vector<SendTicket> tickets(n);
  std::iota(tickets.begin(), tickets.end(), SendTicket{1});
  return tickets;
}

void send_ok(End& end, const TestFrame& frame) {
  const auto ticket = end->send(frame.parts());
  ASSERT_TRUE(ticket.ok()) << ticket.error().text();
}

// ---- frames arrive -----------------------------------------------------------------------------------------------

TEST_P(TransportContract, FramesOfEverySize_ArriveInOrderAsTheyWereSent) {
  Link link = connect();
  const std::size_t sizes[] = {64,    80,    96,    4096,       16368, 16384,      16400,     32768,
                               65520, 65536, 65552, kMega - 16, kMega, kMega + 16, 3 * kMega, 64};
  std::vector<std::unique_ptr<TestFrame>> frames;
  for (const std::size_t size : sizes) {
    frames.push_back(make_frame(frames.size() + 1, size));
    send_ok(link.client, *frames.back());
  }
  ASSERT_TRUE(pump({&link.client, &link.server},
                   [&] { return link.server.received == frames.size() && link.client.sent.size() == frames.size(); }));
  EXPECT_EQ(link.client.sent, tickets_up_to(frames.size()));
  for (std::size_t i = 0; i < frames.size(); ++i) {
    EXPECT_TRUE(link.server.frames[i] == frames[i]->contiguous()) << "frame of " << sizes[i] << " bytes";
    EXPECT_EQ(link.server.frames[i].size(), sizes[i]);
  }
}

TEST_P(TransportContract, LargestFrame_ArrivesWhole) {
  Link link = connect();
  const TestFrame frame(1, Options().largest_frame);
  send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  EXPECT_TRUE(link.server.frames[0] == frame.contiguous());
}

TEST_P(TransportContract, ManySmallFramesBothWays_ArriveInOrder) {
  constexpr std::size_t kCount = 3000;
  Link link = connect();
  std::vector<std::unique_ptr<TestFrame>> frames;
  for (std::size_t i = 0; i < kCount; ++i) frames.push_back(make_frame(i + 1, i % 3 == 0 ? 64 : 80 + 16 * (i % 20)));
  std::size_t next_client = 0, next_server = 0;
  const auto send_some = [&](End& end, std::size_t& next) {
    while (next < kCount && end->send(frames[next]->parts()).ok()) ++next;
  };
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] {
    send_some(link.client, next_client);
    send_some(link.server, next_server);
    return link.client.received == kCount && link.server.received == kCount && link.client.sent.size() == kCount &&
           link.server.sent.size() == kCount;
  }));
  EXPECT_EQ(link.client.sent, tickets_up_to(kCount));
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(link.server.frames[i] == frames[i]->contiguous()) << i;
    ASSERT_TRUE(link.client.frames[i] == frames[i]->contiguous()) << i;
  }
}

TEST_P(TransportContract, FrameOfManyParts_IsGathered) {
  Link link = connect();
  const auto bytes = TestFrame(7, 1600).contiguous();
  for (const std::size_t piece : {1u, 3u, 64u, 1599u}) {
    std::vector<Part> parts;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      parts.push_back(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
      parts.push_back({});  // nothing to be sent, no reason to stop
    }
    ASSERT_TRUE(link.client->send(parts).ok());
    parts.assign(parts.size(), {});  // the list is the caller's at once
  }
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 4; }));
  for (const auto& frame : link.server.frames) EXPECT_TRUE(frame == bytes);
}

TEST_P(TransportContract, OneEventAPoll_LosesNothing) {
  Link link = connect();
  link.client.events_a_poll = link.server.events_a_poll = 1;
  const TestFrame small(1, 64), large(2, 100000);
  for (int i = 0; i < 20; ++i) send_ok(link.client, i % 5 == 0 ? large : small);
  ASSERT_TRUE(
      pump({&link.client, &link.server}, [&] { return link.server.received == 20 && link.client.sent.size() == 20; }));
  link.client->close();
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
}

TEST_P(TransportContract, HeldFrames_StayAsTheyAre) {
  Link link = connect();
  link.server.hold = true;
  std::vector<std::unique_ptr<TestFrame>> frames;
  for (std::size_t i = 0; i < 10; ++i) {
    frames.push_back(make_frame(i + 1, 80 + 1600 * i));
    send_ok(link.client, *frames.back());
  }
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 10; }));
  for (std::size_t i = 0; i < 10; ++i) EXPECT_TRUE(std::ranges::equal(link.server.held[i], frames[i]->contiguous()));
  // Released in any order.
  std::shuffle(link.server.held.begin(), link.server.held.end(), std::mt19937_64(4717));
  link.server.release_all();
}

// ---- nobody waits for nobody -------------------------------------------------------------------------------------

constexpr Options kNarrow{.socket_buffer = 65536};

TEST_P(TransportContract, LargeFramesBothWaysAtOnce_OneThread_DoNotDeadlock) {
  Link link = connect(kNarrow, kNarrow);
  const TestFrame frame(1, 64 * kMega);
  link.client.copy = link.server.copy = false;
  send_ok(link.client, frame);
  send_ok(link.server, frame);
  EXPECT_TRUE(
      pump({&link.client, &link.server}, [&] { return link.client.received == 1 && link.server.received == 1; }));
}

TEST_P(TransportContract, LargeFramesBothWaysAtOnce_TwoThreads_DoNotDeadlock) {
  Link link = connect(kNarrow, kNarrow);
  const TestFrame frame(1, 64 * kMega);
  const auto expected = frame.contiguous();
  const auto run = [&](End& end) {
    send_ok(end, frame);
    EXPECT_TRUE(pump({&end}, [&] { return end.received == 1 && end.sent.size() == 1; }));
    EXPECT_TRUE(end.frames.at(0) == expected);
  };
  std::thread other([&] { run(link.server); });
  run(link.client);
  other.join();
}

TEST_P(TransportContract, TwoThreads_ManyFrames_AllArrive) {
  constexpr std::size_t kCount = 2000;
  Link link = connect({.receive_window = 64 * kMega}, {.receive_window = 64 * kMega});
  const TestFrame small(1, 64), large(2, 20000);
  const auto run = [&](End& end) {
    end.copy = false;
    std::size_t next = 0;
    EXPECT_TRUE(pump({&end}, [&] {
      while (next < kCount && end->send((next % 7 == 0 ? large : small).parts()).ok()) ++next;
      return end.received == kCount && end.sent.size() == kCount;
    }));
  };
  std::thread other([&] { run(link.server); });
  run(link.client);
  other.join();
}

TEST_P(TransportContract, FullWindow_StopsReadingGoesOnAfterRelease) {
  constexpr std::size_t kFrame = kMega;
  const Options window{
      .largest_frame = kFrame, .receive_window = 2 * kFrame, .max_open_sends = 256, .socket_buffer = 65536};
  Link link = connect(kNarrow, window);
  link.server.hold = true;
  const TestFrame frame(1, kFrame);
  for (int i = 0; i < 6; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 2; }));
  pump_briefly({&link.client, &link.server});
  EXPECT_EQ(link.server.received, 2u);
  EXPECT_LT(link.client.sent.size(), 6u) << "what the receiver has no room for stays the sender's";
  EXPECT_FALSE(wait(*link.server.connection, 20ms)) << "bytes that cannot be read are no reason to wake up";

  // Sends go on: both may have a full window and still answer.
  const TestFrame answer(2, 5 * kFrame);
  send_ok(link.server, answer);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.client.received == 1; }));
  EXPECT_EQ(link.server.received, 2u);

  ASSERT_TRUE(pump({&link.client, &link.server}, [&] {
    link.server.release_all();
    return link.server.received == 6 && link.client.sent.size() == 6;
  }));
  for (const auto& received : link.server.frames) EXPECT_TRUE(received == frame.contiguous());
}

TEST_P(TransportContract, PeerEndsWhileWindowIsFull_ClosesAfterRelease) {
  const Options window{.largest_frame = 4096, .receive_window = 4096, .max_open_sends = 256, .socket_buffer = 0};
  Link link = connect({}, window);
  link.server.hold = true;
  const TestFrame frame(1, 4096);
  for (int i = 0; i < 3; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  link.client.connection.reset();
  ASSERT_TRUE(pump({&link.server}, [&] {
    link.server.release_all();
    return link.server.closed;
  }));
  EXPECT_EQ(link.server->close_reason().code(), ErrorCode::kPeerGone);
}

// The second frame has been read with the first and waits for room: no more bytes will come to say so.
TEST_P(TransportContract, WindowFull_ReleaseMakesTheFrameBehindItReady) {
  const Options window{.largest_frame = 4096, .receive_window = 4096, .max_open_sends = 256, .socket_buffer = 0};
  Link link = connect({}, window);
  link.server.hold = true;
  const TestFrame first(1, 4096), second(2, 64);
  send_ok(link.client, first);
  send_ok(link.client, second);
  ASSERT_TRUE(pump({&link.server}, [&] { return link.server.received == 1; }));
  Event event;
  ASSERT_EQ(link.server->poll({&event, 1}), 0u);
  link.server.release_all();
  (void)link.client->poll({&event, 1});  // loopback: the sender delivers
  EXPECT_TRUE(wait(*link.server.connection, 5s));
  ASSERT_TRUE(pump({&link.server}, [&] { return link.server.received == 2; }));
}

TEST_P(TransportContract, MuteClient_DoesNotKeepOthersOut) {
  auto transport = GetParam().make();
  auto listener = transport->listen("127.0.0.1:0", {});
  ASSERT_TRUE(listener.ok());
  std::vector<std::unique_ptr<Connection>> mute;
  for (int i = 0; i < 3; ++i) {
    auto connection = transport->connect((*listener)->address(), {}, 5s);
    ASSERT_TRUE(connection.ok()) << connection.error().text();
    mute.push_back(std::move(*connection));
  }
  End client, server;
  auto connection = transport->connect((*listener)->address(), {}, 5s);
  ASSERT_TRUE(connection.ok());
  client.connection = std::move(*connection);
  const TestFrame frame(1, 64);
  send_ok(client, frame);
  std::vector<std::unique_ptr<Connection>> accepted;
  for (int i = 0; i < 3; ++i) accepted.push_back(accept_one(**listener));
  server.connection = accept_one(**listener);
  EXPECT_TRUE(pump({&client, &server}, [&] { return server.received == 1; }));
  auto nobody = (*listener)->accept();
  ASSERT_TRUE(nobody.ok());
  EXPECT_EQ(*nobody, nullptr);
}

// ---- waiting -----------------------------------------------------------------------------------------------------

TEST_P(TransportContract, Wait_EndsWhenThereIsSomethingToSay) {
  Link link = connect();
  while (link.client.poll() + link.server.poll() > 0) {
  }
  EXPECT_FALSE(wait(*link.server.connection, 1ms)) << "nothing was sent";
  const TestFrame frame(1, 64);
  send_ok(link.client, frame);
  EXPECT_TRUE(wait(*link.client.connection, kPatience)) << "its kSent is due";
  EXPECT_TRUE(wait(*link.server.connection, kPatience)) << "a frame has come";
  ASSERT_TRUE(
      pump({&link.client, &link.server}, [&] { return link.server.received == 1 && link.client.sent.size() == 1; }));
  link.client->close();
  EXPECT_TRUE(wait(*link.client.connection, kPatience));
  EXPECT_TRUE(wait(*link.server.connection, kPatience));
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
  EXPECT_EQ(link.client->wait_fd(), -1);
  EXPECT_FALSE(wait(*link.client.connection, kPatience)) << "nothing follows kClosed";
}

// ---- ends --------------------------------------------------------------------------------------------------------

TEST_P(TransportContract, CloseWithOpenSends_EachEndsOnceAndClosedIsLast) {
  const Options window{.largest_frame = kMega, .receive_window = kMega, .max_open_sends = 256, .socket_buffer = 65536};
  Link link = connect(kNarrow, window);
  link.server.hold = true;
  const TestFrame frame(1, kMega);
  for (int i = 0; i < 20; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  ASSERT_LT(link.client.sent.size(), 20u);
  link.client->close();
  link.client->close();
  const auto late = link.client->send(frame.parts());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), ErrorCode::kPeerGone);
  link.client.events_a_poll = 3;
  ASSERT_TRUE(pump({&link.client}, [&] { return link.client.closed; }));
  EXPECT_EQ(link.client.sent, tickets_up_to(20));
  EXPECT_EQ(link.client.poll(), 0u);
  EXPECT_THAT(link.client->close_reason().text(), HasSubstr("closed by this side"));
}

// The other end has not polled since: what was sent may be under way still.
TEST_P(TransportContract, CloseWithOpenSends_TheOtherEndClosesToo) {
  for (const bool client_closes : {true, false}) {
    Link link = connect(kNarrow, kNarrow);
    End& closing = client_closes ? link.client : link.server;
    End& other = client_closes ? link.server : link.client;
    const TestFrame frame(1, kMega);
    for (int i = 0; i < 4; ++i) send_ok(closing, frame);
    closing->close();
    ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return closing.closed && other.closed; }))
        << (client_closes ? "the client closes" : "the server closes");
    EXPECT_EQ(closing.sent, tickets_up_to(4));
    EXPECT_EQ(other->close_reason().code(), ErrorCode::kPeerGone);
  }
}

TEST_P(TransportContract, FramesSentBeforeClose_ArriveBeforeIt) {
  Link link = connect();
  const TestFrame frame(1, 50000);
  for (int i = 0; i < 5; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.client.sent.size() == 5; }));
  link.client->close();
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed; }));
  EXPECT_EQ(link.server.received, 5u);
  EXPECT_EQ(link.server->close_reason().code(), ErrorCode::kPeerGone);
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr(link.server->peer_name()));
}

TEST_P(TransportContract, PeerDestroyed_EndsOpenSendsAndCloses) {
  Link link = connect(kNarrow, {.largest_frame = kMega, .receive_window = kMega});
  link.server.hold = true;
  const TestFrame frame(1, kMega);
  for (int i = 0; i < 20; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  link.server.connection.reset();
  ASSERT_TRUE(pump({&link.client}, [&] { return link.client.closed; }));
  EXPECT_EQ(link.client.sent, tickets_up_to(20));
  EXPECT_EQ(link.client->close_reason().code(), ErrorCode::kPeerGone);
  EXPECT_FALSE(link.client->send(frame.parts()).ok());
}

TEST_P(TransportContract, DestroyedWithOpenSendsAndHeldFrames_LeavesNothing) {
  Link link = connect(kNarrow, {.largest_frame = kMega, .receive_window = kMega});
  link.server.hold = true;
  const TestFrame frame(1, kMega);
  for (int i = 0; i < 3; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
}

TEST_P(TransportContract, ConnectionsOutliveListenerAndTransport) {
  Link link = connect();
  link.listener.reset();
  link.transport.reset();
  const TestFrame frame(1, 640);
  send_ok(link.client, frame);
  EXPECT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
}

TEST_P(TransportContract, FrameLongerThanAllowed_ClosesWithCorrupt) {
  const Options limit{.largest_frame = 4096};
  Link link = connect({}, limit);
  const TestFrame fits(1, 4096), too_long(2, 4112);
  send_ok(link.client, fits);
  send_ok(link.client, too_long);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
  EXPECT_EQ(link.server.received, 1u);
  EXPECT_EQ(link.server->close_reason().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr(refusal(4112, 4096)));
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr(link.server->peer_name()));
  EXPECT_EQ(link.client->close_reason().code(), ErrorCode::kPeerGone);
}

TEST_P(TransportContract, LargestFrameRaisedAndLowered_CountsForTheNextFrames) {
  const Options stranger{.largest_frame = 144};  // the longest frame of a handshake
  Link link = connect({}, stranger);
  const TestFrame greeting(1, 144), large(2, 8192), again(3, 8192);
  send_ok(link.client, greeting);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  link.server->set_largest_frame(on_link(8192));
  send_ok(link.client, large);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 2; }));
  link.server->set_largest_frame(on_link(4096));
  send_ok(link.client, again);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
  EXPECT_EQ(link.server.received, 2u);
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr(refusal(8192, 4096)));
}

TEST_P(TransportContract, LargestFrameBeyondTheWindow_TheWindowCounts) {
  const Options small{.largest_frame = 4096, .receive_window = 4096};
  Link link = connect({}, small);
  link.server->set_largest_frame(kMega);
  const TestFrame too_long(1, 8192);
  send_ok(link.client, too_long);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr(refusal(8192, 4096)));
}

TEST_P(TransportContract, Garbage_ClosesWithCorrupt) {
  Link link = connect();
  const std::vector<std::byte> garbage(96, std::byte{0x47});
  const Part parts[] = {garbage};
  ASSERT_TRUE(link.client->send(parts).ok());
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
  EXPECT_EQ(link.server.received, 0u);
  EXPECT_EQ(link.server->close_reason().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr("magic 0x47474747"));
}

// ---- limits and counts -------------------------------------------------------------------------------------------

TEST_P(TransportContract, MoreOpenSendsThanAllowed_AreBusy) {
  Link link = connect({.max_open_sends = 4});
  const TestFrame frame(1, 64);
  for (int i = 0; i < 4; ++i) send_ok(link.client, frame);
  const auto fifth = link.client->send(frame.parts());
  ASSERT_FALSE(fifth.ok()) << "open until kSent was given";
  EXPECT_EQ(fifth.error().code(), ErrorCode::kBusy);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.client.sent.size() == 4; }));
  send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 5; }));
}

TEST_P(TransportContract, Stats_CountEveryByte) {
  Link link = connect();
  const std::size_t sizes[] = {64, 80, 70000, 1600};
  std::vector<std::unique_ptr<TestFrame>> frames;
  for (const std::size_t size : sizes) frames.push_back(make_frame(1, size));
  for (const auto& frame : frames) send_ok(link.client, *frame);
  send_ok(link.server, *frames[0]);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] {
    return link.server.received == 4 && link.client.sent.size() == 4 && link.client.received == 1;
  }));
  const TransportCase::Handshake& handshake = GetParam().handshake;
  const std::uint64_t bytes = 64 + 80 + 70000 + 1600 + 4 * GetParam().seal_bytes + handshake.bytes[0];
  EXPECT_EQ(link.client->stats().bytes_sent, bytes);
  EXPECT_EQ(link.client->stats().frames_sent, 4 + handshake.frames[0]);
  EXPECT_EQ(link.server->stats().bytes_received, bytes);
  EXPECT_EQ(link.server->stats().frames_received, 4 + handshake.frames[0]);
  EXPECT_EQ(link.client->stats().bytes_received, on_link(64) + handshake.bytes[1]);
  EXPECT_EQ(link.server->stats().bytes_sent, on_link(64) + handshake.bytes[1]);
}

// ---- addresses ---------------------------------------------------------------------------------------------------

TEST_P(TransportContract, ConnectToClosedPort_NamesTheAddress) {
  auto transport = GetParam().make();
  auto listener = transport->listen("127.0.0.1:0", {});
  ASSERT_TRUE(listener.ok());
  const std::string address = (*listener)->address();
  EXPECT_EQ(address, fmt::format("127.0.0.1:{}", (*listener)->port()));
  EXPECT_NE((*listener)->port(), 0);
  listener->reset();
  const auto connection = transport->connect(address, {}, 5s);
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code(), ErrorCode::kPeerGone);
  EXPECT_THAT(connection.error().text(), HasSubstr(address + ": cannot connect"));
}

TEST_P(TransportContract, PortInUse_NamesTheAddressAndIsFreeAgainAfterwards) {
  auto transport = GetParam().make();
  auto first = transport->listen("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok());
  const std::string address = (*first)->address();
  const auto second = transport->listen(address, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kIo);
  EXPECT_THAT(second.error().text(), HasSubstr(address + ": cannot listen"));
  first->reset();
  EXPECT_TRUE(transport->listen(address, {}).ok());
}

TEST_P(TransportContract, WrongAddressOrOptions_AreRefusedByName) {
  auto transport = GetParam().make();
  for (const char* address : {"", "127.0.0.1", ":9000", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:9x",
                              "::1:9000", "[]:9000", "a b:9000", "[::1:9000"}) {
    const auto listener = transport->listen(address, {});
    ASSERT_FALSE(listener.ok()) << address;
    EXPECT_EQ(listener.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(listener.error().text(), HasSubstr(fmt::format("'{}'", address)));
    EXPECT_FALSE(transport->connect(address, {}, 1s).ok());
  }
  const auto narrow = transport->listen("127.0.0.1:0", {.largest_frame = 2000, .receive_window = 1000});
  ASSERT_FALSE(narrow.ok());
  EXPECT_THAT(narrow.error().text(), HasSubstr("1000 bytes holds no frame of 2000"));
  EXPECT_FALSE(transport->connect("127.0.0.1:1", {.max_open_sends = 0}, 1s).ok());
}

}  // namespace
}  // namespace terrace::transport
