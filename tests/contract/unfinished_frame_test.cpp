// What every transport owes its users of frames that are not all there: Connection::unfinished().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "tests/contract/transport_harness.h"
#include "tests/contract/transports.h"

namespace terrace::transport {
namespace {

using namespace test;
using testing::HasSubstr;

class UnfinishedFrames : public testing::TestWithParam<TransportCase> {
 protected:
  Link connect(const Options& server = {}) { return connect_over(GetParam(), {}, server); }
};
// Over transports by which a frame may come in pieces.
class UnfinishedFramesOfStreams : public UnfinishedFrames {};

std::vector<TransportCase> streams() {
  std::vector<TransportCase> streams;
  std::ranges::copy_if(kTransports, std::back_inserter(streams), &TransportCase::streams);
  return streams;
}
const auto kName = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(All, UnfinishedFrames, testing::ValuesIn(kTransports), kName);
INSTANTIATE_TEST_SUITE_P(All, UnfinishedFramesOfStreams, testing::ValuesIn(streams()), kName);

void send_ok(End& end, std::span<const std::byte> piece) {
  const auto ticket = end->send({&piece, 1});
  ASSERT_TRUE(ticket.ok()) << ticket.error().text();
}

TEST_P(UnfinishedFramesOfStreams, InPieces_ToldUntilTheLastByte) {
  Link link = connect();
  EXPECT_EQ(link.server->unfinished().bytes, 0u);
  for (std::uint64_t number = 0; number < 3; ++number) {
    const std::vector<std::byte> bytes = TestFrame(number + 1, 100000).contiguous();
    std::size_t sent = 0;
    for (const std::size_t end : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{99999}}) {
      send_ok(link.client, std::span(bytes).subspan(sent, end - sent));
      sent = end;
      ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server->unfinished().bytes == sent; }));
      EXPECT_EQ(link.server->unfinished().frame_bytes, sent < 64 ? 0u : bytes.size());
      EXPECT_EQ(link.server->unfinished().number, number);
      EXPECT_EQ(link.client->unfinished().bytes, 0u) << "of what comes, not of what is sent";
    }
    send_ok(link.client, std::span(bytes).subspan(sent));
    ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == number + 1; }));
    EXPECT_EQ(link.server->unfinished().bytes, 0u);
  }
}

TEST_P(UnfinishedFrames, WholeFrames_AreNone) {
  Link link = connect();
  link.server.events_a_poll = 1;  // those behind it have come: they wait for this side
  const std::vector<std::byte> frame = TestFrame(1, 80).contiguous();
  for (int i = 0; i < 20; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client}, [&] { return link.client.sent.size() == 20; }));
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] {
    EXPECT_EQ(link.server->unfinished().bytes, 0u) << "after " << link.server.received;
    return link.server.received == 20;
  }));
  EXPECT_EQ(link.server->unfinished().bytes, 0u);
}

// A frame that is fetched after it was announced: UCX tells its length and not how much has come, so that it is given
// the time of all of it.
class UnfinishedFramesOfUcx : public UnfinishedFrames {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnfinishedFramesOfUcx);
std::vector<TransportCase> over_ucx() {
  std::vector<TransportCase> cases;
  std::ranges::copy_if(kTransports, std::back_inserter(cases), [](const TransportCase& transport) {
    const std::string_view name = transport.name;
    return name == "ucx" || name == "sealed_ucx";  // a slow one sends in poll() alone
  });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, UnfinishedFramesOfUcx, testing::ValuesIn(over_ucx()), kName);

TEST_P(UnfinishedFramesOfUcx, Announced_CountsAsItsWholeLength) {
  Link link = connect();
  const std::vector<std::byte> frame = TestFrame(1, std::size_t{1} << 20).contiguous();
  send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.server}, [&] { return link.server->unfinished().bytes > 0; }));
  EXPECT_EQ(link.server->unfinished().bytes, frame.size() + GetParam().seal_bytes);
  EXPECT_EQ(link.server->unfinished().frame_bytes, frame.size() + GetParam().seal_bytes);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  EXPECT_EQ(link.server->unfinished().bytes, 0u);
}

// The peer cannot help it: what fills the window is this side's to release.
TEST_P(UnfinishedFrames, WaitingForTheWindow_IsNone) {
  const Options window{.largest_frame = 4096, .receive_window = 4096, .max_open_sends = 256, .socket_buffer = 0};
  Link link = connect(window);
  link.server.hold = true;
  const std::vector<std::byte> frame = TestFrame(1, 4096).contiguous();
  for (int i = 0; i < 2; ++i) send_ok(link.client, frame);
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  pump_briefly({&link.client, &link.server});
  EXPECT_EQ(link.server->unfinished().bytes, 0u);
  link.server.release_all();
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 2; }));
}

TEST_P(UnfinishedFramesOfStreams, EndInTheMiddle_NoneIsLeft) {
  Link link = connect();
  const std::vector<std::byte> bytes = TestFrame(1, 100000).contiguous();
  send_ok(link.client, std::span(bytes).first(5000));
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server->unfinished().bytes == 5000; }));
  link.client->close();
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.closed && link.client.closed; }));
  EXPECT_EQ(link.server->unfinished().bytes, 0u);
  EXPECT_THAT(link.server->close_reason().text(), HasSubstr("after 5000 bytes of a frame"));
}

}  // namespace
}  // namespace terrace::transport
