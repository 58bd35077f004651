// Weights and decode batches over one link of 1 Gbit/s: both go on, and while steps live the weights are held to their
// share of what the link was measured to take.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>

#include "common/transport/pacing.h"
#include "common/transport/tcp/tcp.h"
#include "tests/contract/transport_harness.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace paced_link_test {

using namespace std::chrono_literals;
using transport::test::End;
using transport::test::TestFrame;

const auto* const kPacedNetwork = own_network();

constexpr unsigned kMegabits = 1000;
constexpr double kLinkBytes = kMegabits * 125'000.0;  // a second
constexpr std::size_t kPiece = 256 << 10, kBatch = 5 << 10;

class PacedLink : public testing::Test {
 protected:
  struct Link {
    End client, server;
  };
  void SetUp() override {
    const std::string lacks = lacking({"root", "netns", "tbf"});
    if (!lacks.empty()) GTEST_SKIP() << lacks;
    machine_.emplace(1);
    machine_->set_rate(kMegabits);
    std::unique_ptr<transport::Listener> listener;
    machine_->inside([&] { listener = must(tcp_.listen(machine_->ipv4() + ":0", {})); });
    for (Link* link : {&weights_, &decode_}) {
      link->client.connection = must(tcp_.connect(listener->address(), {}, 10s));
      link->server.connection = transport::test::accept_one(*listener);
      for (End* end : {&link->client, &link->server}) end->copy = false;
    }
  }
  void TearDown() override { weights_ = {}, decode_ = {}; }

  // A look at everything: weights without a pause, and one batch at a time that is sent back.
  void turn(bool decoding) {
    while (n_pieces_ - weights_.client.sent.size() < 8) {
      ASSERT_TRUE(weights_.client->send(piece_.parts()).ok());
      ++n_pieces_;
    }
    if (decoding && decode_.client.received == n_batches_) {
      activity_.seen(LinkRate::TimePoint::clock::now());
      ASSERT_TRUE(decode_.client->send(batch_.parts()).ok());
      ++n_batches_;
    }
    for (End* end : {&weights_.client, &weights_.server, &decode_.client, &decode_.server}) end->poll();
    pacer_.follow(*weights_.client.connection, LinkRate::TimePoint::clock::now());
    if (decode_.server.received > n_answers_) {
      ASSERT_TRUE(decode_.server->send(batch_.parts()).ok());
      ++n_answers_;
    }
    if (n_pieces_ == weights_.client.sent.size() + 8)
      (void)transport::wait(*weights_.client.connection, std::chrono::microseconds(200));
  }
  template <class Value>
  Value option(int level, int name) {
    Value value{};
    socklen_t bytes = sizeof value;
    EXPECT_EQ(::getsockopt(weights_.client->wait_fd(), level, name, &value, &bytes), 0);
    return value;
  }

  using LinkRate = transport::LinkRate;
  std::optional<Machine> machine_;
  transport::TcpTransport tcp_;
  // The same bytes again and again: what they are is nothing to the link.
  const TestFrame piece_{1, kPiece}, batch_{2, kBatch};
  Link weights_, decode_;
  std::size_t n_pieces_ = 0, n_batches_ = 0, n_answers_ = 0;
  transport::DecodeActivity activity_;
  LinkRate rate_;
  transport::Pacer pacer_{activity_, rate_};
};

TEST_F(PacedLink, WeightsAndDecode_BothGoOnAndTheWeightsAreHeldToTheirShare) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto in_time = [&] { return std::chrono::steady_clock::now() < end && !HasFatalFailure(); };
  // The first transfer tells what the link takes.
  while (weights_.server.received * kPiece < 6 * transport::Pacer::kStretch && in_time()) turn(false);
  ASSERT_GT(rate_.measured(), 0u);
  EXPECT_LT(static_cast<double>(rate_.measured()), 1.15 * kLinkBytes) << "more than the link has";
  EXPECT_EQ(rate_.pace(), 0u) << "no step lives";
  EXPECT_EQ(option<std::uint64_t>(SOL_SOCKET, SO_MAX_PACING_RATE), ~std::uint64_t{0});

  const std::size_t pieces_before = weights_.server.received;
  const auto paced = [&](double share) {
    return static_cast<std::uint64_t>(share * static_cast<double>(rate_.measured()));
  };
  // On a slow machine it may come to a trial.
  const auto fits = [&](std::uint64_t pace) { return pace <= paced(0.8) || pace == paced(transport::kTrialShare); };
  while ((decode_.client.received < 100 || weights_.server.received < pieces_before + 20) && in_time()) {
    turn(true);
    ASSERT_TRUE(fits(rate_.pace())) << rate_.pace() << " of " << rate_.measured();
  }
  EXPECT_GE(decode_.client.received, 100u) << "decode batches wait behind weights";
  EXPECT_GE(weights_.server.received, pieces_before + 20) << "weights do not move while steps live";
  activity_.seen(LinkRate::TimePoint::clock::now());
  pacer_.follow(*weights_.client.connection, LinkRate::TimePoint::clock::now());
  EXPECT_EQ(option<std::uint64_t>(SOL_SOCKET, SO_MAX_PACING_RATE), rate_.pace());
  EXPECT_GE(rate_.pace(), paced(0.8));
  EXPECT_LE(option<unsigned>(IPPROTO_TCP, TCP_NOTSENT_LOWAT), 64u << 10);
}

}  // namespace paced_link_test
}  // namespace terrace::test
