#include "common/transport/forwarding_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::transport {
namespace forwarding_connection_test {

using ::testing::Return;
using ::testing::ReturnRef;

class Inner : public Connection {
 public:
  MOCK_METHOD(Result<SendTicket>, send, (std::span<const std::span<const std::byte>>), (override));
  MOCK_METHOD(std::size_t, poll, (std::span<Event>), (override));
  MOCK_METHOD(void, set_largest_frame, (std::uint64_t), (override));
  MOCK_METHOD(void, release, (std::span<const std::byte>), (override));
  MOCK_METHOD(int, wait_fd, (), (override));
  MOCK_METHOD(short, wait_events, (), (override));
  MOCK_METHOD(void, set_pace, (std::uint64_t), (override));
  MOCK_METHOD(std::optional<SentProgress>, sent_progress, (), (const, override));
  MOCK_METHOD(void, close, (), (override));
  MOCK_METHOD(const Error&, close_reason, (), (const, override));
  MOCK_METHOD(UnfinishedFrame, unfinished, (), (const, override));
  MOCK_METHOD(TransportStats, stats, (), (const, override));
  MOCK_METHOD(ConnectionSecurity, security, (), (const, override));
  MOCK_METHOD(bool, near_its_end, (), (const, override));
  MOCK_METHOD(std::string, peer_name, (), (const, override));
};

class Decorator final : public ForwardingConnection {
 public:
  explicit Decorator(std::unique_ptr<Connection> inner) : ForwardingConnection(std::move(inner)) {}
};

// Those with a default of their own too, which a decorator that forgets them would hide.
TEST(ForwardingConnection, EveryCall_ReachesTheInnerConnection) {
  auto owned = std::make_unique<::testing::StrictMock<Inner>>();
  Inner& inner = *owned;
  Decorator outer(std::move(owned));
  const Error reason(ErrorCode::kPeerGone, "gone");
  EXPECT_CALL(inner, send).WillOnce(Return(Result<SendTicket>(SendTicket{7})));
  EXPECT_CALL(inner, poll).WillOnce(Return(3));
  EXPECT_CALL(inner, set_largest_frame(5));
  EXPECT_CALL(inner, release);
  EXPECT_CALL(inner, wait_fd).WillOnce(Return(11));
  EXPECT_CALL(inner, wait_events).WillOnce(Return(short{1}));
  EXPECT_CALL(inner, set_pace(9));
  EXPECT_CALL(inner, sent_progress).WillOnce(Return(SentProgress{.confirmed_bytes = 13, .busy = {}}));
  EXPECT_CALL(inner, close);
  EXPECT_CALL(inner, close_reason).WillOnce(ReturnRef(reason));
  EXPECT_CALL(inner, unfinished).WillOnce(Return(UnfinishedFrame{.number = 1, .bytes = 2, .frame_bytes = 3}));
  EXPECT_CALL(inner, stats).WillOnce(Return(TransportStats{.bytes_sent = 17}));
  EXPECT_CALL(inner, security).WillOnce(Return(ConnectionSecurity{.session = 19}));
  EXPECT_CALL(inner, near_its_end).WillOnce(Return(true));
  EXPECT_CALL(inner, peer_name).WillOnce(Return("box1"));

  EXPECT_EQ(*outer.send({}), 7u);
  EXPECT_EQ(outer.poll({}), 3u);
  outer.set_largest_frame(5);
  outer.release({});
  EXPECT_EQ(outer.wait_fd(), 11);
  EXPECT_EQ(outer.wait_events(), 1);
  outer.set_pace(9);
  EXPECT_EQ(outer.sent_progress()->confirmed_bytes, 13u);
  outer.close();
  EXPECT_EQ(&outer.close_reason(), &reason);
  EXPECT_EQ(outer.unfinished().bytes, 2u);
  EXPECT_EQ(outer.stats().bytes_sent, 17u);
  EXPECT_EQ(outer.security().session, 19u);
  EXPECT_TRUE(outer.near_its_end());
  EXPECT_EQ(outer.peer_name(), "box1");
}

}  // namespace forwarding_connection_test
}  // namespace terrace::transport
