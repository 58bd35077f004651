// What only a socket can do to a connection: the rest is in tests/contract/transport_contract_test.cpp.
#include "common/transport/tcp/tcp.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/contract/transport_harness.h"
#include "tests/unit/common/transport/raw_socket.h"

namespace terrace::transport {
namespace {

using namespace test;
using testing::HasSubstr;

class Tcp : public testing::Test {
 protected:
  void SetUp() override {
    auto listener = transport_.listen("127.0.0.1:0", {});
    ASSERT_TRUE(listener.ok()) << listener.error().text();
    listener_ = std::move(*listener);
    ASSERT_TRUE(raw_.connect(listener_->port()));
    server_.connection = accept_one(*listener_);
  }
  void expect_closed(ErrorCode code, const std::string& reason) {
    ASSERT_TRUE(pump({&server_}, [&] { return server_.closed; }));
    EXPECT_EQ(server_->close_reason().code(), code);
    EXPECT_THAT(server_->close_reason().text(), HasSubstr(reason));
    EXPECT_THAT(server_->close_reason().text(), testing::StartsWith(server_->peer_name()));
  }

  TcpTransport transport_;
  std::unique_ptr<Listener> listener_;
  RawSocket raw_;
  End server_;
};

TEST_F(Tcp, FrameByteByByte_Arrives) {
  const auto bytes = TestFrame(1, 160).contiguous();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    raw_.write(std::span(bytes).subspan(i, 1));
    server_.poll();
  }
  ASSERT_TRUE(pump({&server_}, [&] { return server_.received == 1; }));
  EXPECT_TRUE(server_.frames[0] == bytes);
}

TEST_F(Tcp, ManyFramesInOneWrite_Arrive) {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < 500; ++i) {
    const auto bytes = TestFrame(i, 80 + 16 * (i % 9)).contiguous();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  raw_.write(all);
  ASSERT_TRUE(pump({&server_}, [&] { return server_.received == 500; }));
  for (std::size_t i = 0; i < 500; ++i) EXPECT_TRUE(server_.frames[i] == TestFrame(i, 80 + 16 * (i % 9)).contiguous());
}

TEST_F(Tcp, AnotherProtocol_ClosesWithCorrupt) {
  const std::string request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\nUser-Agent: a browser\r\n\r\n";
  raw_.write(std::as_bytes(std::span(request)));
  expect_closed(ErrorCode::kCorrupt, "magic 0x20544547");
}

TEST_F(Tcp, HeaderThatAnnouncesTooMuch_ClosesBeforeAnythingIsSetAside) {
  auto bytes = TestFrame(1, 64).contiguous();
  const std::uint32_t body = 0xfffffff0u;
  std::memcpy(bytes.data() + 40, &body, sizeof(body));
  raw_.write(bytes);
  expect_closed(ErrorCode::kCorrupt, "at most 67108864");
}

TEST_F(Tcp, EndInsideAFrame_SaysHowMuchCame) {
  const auto bytes = TestFrame(1, 100000).contiguous();
  raw_.write(std::span(bytes).first(30000));
  raw_.end();
  expect_closed(ErrorCode::kPeerGone, "closed by the peer after 30000 bytes of a frame");
}

TEST_F(Tcp, Reset_ClosesWithItsReason) {
  raw_.reset();
  expect_closed(ErrorCode::kPeerGone, "reset by peer");
}

TEST_F(Tcp, ResetWhileSending_EndsOpenSendsWithoutASignal) {
  struct sigaction before {};
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;  // a SIGPIPE would end this program
  ::sigaction(SIGPIPE, &fatal, &before);
  const TestFrame frame(1, std::size_t{16} << 20);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(server_->send(frame.parts()).ok());
  raw_.reset();
  ASSERT_TRUE(pump({&server_}, [&] { return server_.closed; }));
  EXPECT_EQ(server_.sent, (std::vector<SendTicket>{1, 2, 3}));
  EXPECT_EQ(server_->close_reason().code(), ErrorCode::kPeerGone);
  ::sigaction(SIGPIPE, &before, nullptr);
}

// A node that refuses says why and closes; the client's next write then fails, but the answer must still be read.
TEST_F(Tcp, LastWordsOfThePeer_AreReadAfterAFailedWrite) {
  const auto words = TestFrame(9, 160).contiguous();
  raw_.write(words);
  raw_.end();
  const TestFrame frame(1, 64);
  for (int i = 0; i < 50 && server_->send(frame.parts()).ok(); ++i) ::usleep(1000);
  ASSERT_TRUE(pump({&server_}, [&] { return server_.closed; }));
  ASSERT_EQ(server_.received, 1u);
  EXPECT_TRUE(server_.frames[0] == words);
}

// Nothing is read then, so that no read can tell.
TEST(TcpFullWindow, Reset_IsNoticed) {
  TcpTransport transport;
  auto listener = transport.listen("127.0.0.1:0", {.largest_frame = 4096, .receive_window = 4096});
  ASSERT_TRUE(listener.ok());
  RawSocket raw;
  ASSERT_TRUE(raw.connect((*listener)->port()));
  End server;
  server.connection = accept_one(**listener);
  server.hold = true;
  const auto bytes = TestFrame(1, 4096).contiguous();
  for (int i = 0; i < 3; ++i) raw.write(bytes);
  ASSERT_TRUE(pump({&server}, [&] { return server.received == 1; }));
  raw.reset();
  ASSERT_TRUE(pump({&server}, [&] { return server.closed; }));
  EXPECT_THAT(server->close_reason().text(), HasSubstr("reset by peer"));
}

TEST_F(Tcp, InterruptedWait_GoesOn) {
  EXPECT_FALSE(wait(*server_.connection, 1ms));
  struct sigaction before {};
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &handler, &before);
  ::ualarm(2000, 2000);
  EXPECT_FALSE(wait(*server_.connection, 30ms)) << "a signal is nothing to say";
  ::ualarm(0, 0);
  ::sigaction(SIGALRM, &before, nullptr);
}

template <class Value>
Value option_of(Connection& connection, int level, int name) {
  Value value{};
  socklen_t bytes = sizeof value;
  EXPECT_EQ(::getsockopt(connection.wait_fd(), level, name, &value, &bytes), 0);
  return value;
}

TEST_F(Tcp, Pace_IsTheSocketsUntilItIsTakenBack) {
  const auto rate = [&] { return option_of<std::uint64_t>(*server_.connection, SOL_SOCKET, SO_MAX_PACING_RATE); };
  const auto low_water = [&] { return option_of<unsigned>(*server_.connection, IPPROTO_TCP, TCP_NOTSENT_LOWAT); };
  const unsigned systems = low_water();
  EXPECT_EQ(rate(), ~std::uint64_t{0});
  server_->set_pace(std::uint64_t{6} << 30);  // more than 32 bits hold
  EXPECT_EQ(rate(), std::uint64_t{6} << 30);
  EXPECT_LE(low_water(), 65536u);
  EXPECT_GT(low_water(), 0u);
  server_->set_pace(0);
  EXPECT_EQ(rate(), ~std::uint64_t{0});
  EXPECT_EQ(low_water(), systems);
}

TEST_F(Tcp, SentProgress_CountsWhatThePeerConfirmed) {
  const auto frame = TestFrame(1, 4096);
  ASSERT_TRUE(server_->send(frame.parts()).ok());
  std::vector<std::byte> got(4096);
  ASSERT_TRUE(raw_.read(got, std::chrono::seconds(5)));
  ASSERT_TRUE(pump({&server_}, [&] {
    const auto progress = server_->sent_progress();
    return progress && progress->confirmed_bytes >= 4096;
  }));
  server_->close();
  ASSERT_TRUE(pump({&server_}, [&] { return server_.closed; }));
  EXPECT_FALSE(server_->sent_progress().has_value());
  server_->set_pace(1000);  // has no effect, and does no harm
}

// So that a slow node is not taken for a slow link.
TEST_F(Tcp, SentProgress_TellsOfAPeerThatReadsNothing) {
  const auto frame = TestFrame(1, 32 << 20);
  ASSERT_TRUE(server_->send(frame.parts()).ok());
  EXPECT_TRUE(pump({&server_}, [&] {
    const auto progress = server_->sent_progress();
    return progress && progress->delivery_rate > 0 && progress->receiver_limited.count() > 0 &&
           progress->receiver_limited <= progress->busy;
  }));
}

// A decode batch and its reply, one at a time as in a step: what the system read is what the caller gets.
TEST_F(Tcp, FramesOfADecodeStep_AreNotCopied) {
  constexpr std::size_t kReply = 15 << 10;
  const auto batch = TestFrame(1, 5 << 10).contiguous();
  const TestFrame reply(2, kReply);
  std::vector<std::byte> got(kReply);
  for (std::size_t i = 1; i <= 20; ++i) {
    raw_.write(batch);
    ASSERT_TRUE(pump({&server_}, [&] { return server_.received == i; }));
    ASSERT_TRUE(server_->send(reply.parts()).ok());
    ASSERT_TRUE(pump({&server_}, [&] { return server_.sent.size() == i; }));
    ASSERT_TRUE(raw_.read(got, std::chrono::seconds(5)));
  }
  EXPECT_EQ(server_->stats().bytes_copied, 0u);
  // Of one that does not fit the read-ahead its beginning is.
  raw_.write(TestFrame(3, 64 << 10).contiguous());
  ASSERT_TRUE(pump({&server_}, [&] { return server_.received == 21; }));
  EXPECT_GT(server_->stats().bytes_copied, 0u);
  EXPECT_LE(server_->stats().bytes_copied, 16384u);
}

// Root may ask for it; whoever may not is told, and gets no connection that does without.
TEST(TcpBusyPoll, IsTheSocketsOfBothEnds_OrRefusedByName) {
  using namespace std::chrono_literals;
  TcpTransport transport;
  const Options options{.busy_poll = 37us};
  const auto listener = transport.listen("127.0.0.1:0", options);
  if (!listener.ok()) {
    EXPECT_EQ(listener.error().code(), ErrorCode::kIo);
    EXPECT_THAT(listener.error().text(), HasSubstr("CAP_NET_ADMIN"));
    EXPECT_NE(::geteuid(), 0u) << listener.error().text();
    return;
  }
  const auto client = transport.connect((*listener)->address(), options, 5s);
  ASSERT_TRUE(client.ok()) << client.error().text();
  const auto server = accept_one(**listener);
  for (Connection* end : {client->get(), server.get()}) EXPECT_EQ(option_of<int>(*end, SOL_SOCKET, SO_BUSY_POLL), 37);
}

TEST(TcpConnect, SilentPeer_EndsAtTheDeadline) {
  RawSocket listener, first, second;
  const std::uint16_t port = listener.listen();
  // Fills the queue of a listener that accepts nobody: the system then drops whoever comes next.
  ASSERT_TRUE(first.connect(port));
  ::fcntl(second.fd(), F_SETFL, O_NONBLOCK);
  (void)second.connect(port);
  TcpTransport transport;
  const std::string address = fmt::format("127.0.0.1:{}", port);
  const auto connection = transport.connect(address, {}, 150ms);
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code(), ErrorCode::kDeadline);
  EXPECT_THAT(connection.error().text(), HasSubstr(address));
}

TEST(TcpConnect, NameIsLookedUp) {
  TcpTransport transport;
  auto listener = transport.listen("127.0.0.1:0", {});
  ASSERT_TRUE(listener.ok());
  const auto connection = transport.connect(fmt::format("localhost:{}", (*listener)->port()), {}, 5s);
  ASSERT_TRUE(connection.ok()) << connection.error().text();
  EXPECT_EQ((*connection)->peer_name(), (*listener)->address());
}

TEST(TcpConnect, Ipv6Literal) {
  TcpTransport transport;
  auto listener = transport.listen("[::1]:0", {});
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.error().text();
  EXPECT_EQ((*listener)->address(), fmt::format("[::1]:{}", (*listener)->port()));
  const auto connection = transport.connect((*listener)->address(), {}, 5s);
  ASSERT_TRUE(connection.ok()) << connection.error().text();
  EXPECT_EQ((*connection)->peer_name(), (*listener)->address());
}

TEST(TcpListen, NoDescriptorLeft_BusyAndTheConnectionWaits) {
  TcpTransport tcp;
  auto listener = tcp.listen("127.0.0.1:0", {});
  ASSERT_TRUE(listener.ok()) << listener.error().text();
  // The undefined-behaviour sanitizer opens a pipe to look at the type of an object it has not met yet, and takes a
  // pipe that it cannot open for a bad object: it meets the types of errors here, while descriptors are left.
  const auto none_waits = (*listener)->accept();
  ASSERT_TRUE(none_waits.ok() && *none_waits == nullptr);
  ASSERT_FALSE(tcp.listen((*listener)->address(), {}).ok());
  RawSocket client;
  ASSERT_TRUE(client.connect((*listener)->port()));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = (*listener)->accept();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused.ok()) << "null says that none waits, and wait_fd() says that one does: its owner would spin";
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  EXPECT_TRUE(accept_one(**listener));
}

TEST(TcpListen, AddressOfAnotherMachine_NamesIt) {
  TcpTransport transport;
  const auto listener = transport.listen("192.0.2.1:9000", {});
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().code(), ErrorCode::kIo);
  EXPECT_THAT(listener.error().text(), HasSubstr("192.0.2.1:9000: cannot listen"));
}

}  // namespace
}  // namespace terrace::transport
