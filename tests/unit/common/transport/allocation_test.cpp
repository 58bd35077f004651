// After warm-up a connection allocates nothing: operator new is replaced by one that counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"
#include "tests/contract/sealed_transport.h"
#include "tests/contract/transport_harness.h"
#include "tests/contract/ucx_on_loopback.h"
#include "tests/unit/count_allocations.h"

namespace terrace::transport {
namespace {

using namespace test;

// Polls with nothing of the test's own on the heap; returns the frames that came.
std::size_t poll_and_release(Connection& connection) {
  std::array<Event, 16> events;
  const std::size_t n = connection.poll(events);
  std::size_t frames = 0;
  for (const Event& event : std::span(events).first(n)) {
    if (event.kind == Event::Kind::kClosed) throw std::runtime_error(connection.close_reason().text());
    if (event.kind != Event::Kind::kReceived) continue;
    connection.release(event.frame);
    ++frames;
  }
  return frames;
}

void expect_no_allocation_after_warm_up(std::unique_ptr<Transport> transport, bool handshake = false) {
  Link link = make_link(std::move(transport), {}, {});
  if (handshake) {
    ASSERT_TRUE(pump({&link.client, &link.server},
                     [&] { return link.client->security().proven && link.server->security().proven; }));
  }
  std::vector<std::unique_ptr<TestFrame>> frames;
  for (std::size_t i = 0; i < 12; ++i) frames.push_back(make_frame(i, 80 + 1600 * i * i));
  const auto round = [&](std::size_t first) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      ASSERT_TRUE(link.client->send(frames[(first + i) % frames.size()]->parts()).ok());
      ASSERT_TRUE(link.server->send(frames[i]->parts()).ok());
    }
    for (std::size_t client = 0, server = 0; client < frames.size() || server < frames.size();) {
      client += poll_and_release(*link.client.connection);
      server += poll_and_release(*link.server.connection);
    }
  };
  // A node has nothing to say before the other end has proven who it is.
  ASSERT_TRUE(link.client->send(frames[0]->parts()).ok());
  while (poll_and_release(*link.server.connection) == 0) (void)poll_and_release(*link.client.connection);
  for (std::size_t i = 0; i < 40; ++i) round(i);
  // How many frames are under way at once is for the system to say, and memory is taken for the most there ever were:
  // what every round takes is in each of these, what one more at once takes is in one.
  std::size_t least = ~std::size_t{0};
  for (int measured = 0; measured < 5 && least != 0; ++measured) {
    const std::size_t before = terrace::test::allocations();
    for (std::size_t i = 0; i < 40; ++i) round(5 * i);
    least = std::min(least, terrace::test::allocations() - before);
  }
  EXPECT_EQ(least, 0u);
}

TEST(Allocations, Loopback_NoneAfterWarmUp) {
  expect_no_allocation_after_warm_up(std::make_unique<LoopbackTransport>());
}

TEST(Allocations, Tcp_NoneAfterWarmUp) { expect_no_allocation_after_warm_up(std::make_unique<TcpTransport>()); }

TEST(Allocations, SealedTcp_NoneAfterWarmUp) {
  for (const auto cipher :
       {security::Cipher::kAes256Gcm, security::Cipher::kChaCha20Poly1305, security::Cipher::kPlain})
    expect_no_allocation_after_warm_up(
        std::make_unique<KeyedTransport>(std::make_shared<TcpTransport>(), test_link(cipher)), true);
}

#ifdef TERRACE_HAS_UCX
TEST(Allocations, Ucx_NoneAfterWarmUp) { expect_no_allocation_after_warm_up(std::make_unique<UcxOnLoopback>()); }

TEST(Allocations, SealedUcx_NoneAfterWarmUp) {
  expect_no_allocation_after_warm_up(
      std::make_unique<KeyedTransport>(std::make_shared<UcxOnLoopback>(), test_link(security::Cipher::kAes256Gcm)),
      true);
}
#endif

TEST(Allocations, AreCounted) {
  const std::size_t before = terrace::test::allocations();
  const auto frame = make_frame(1, 4096);
  EXPECT_GT(terrace::test::allocations() - before, 0u);
}

}  // namespace
}  // namespace terrace::transport
