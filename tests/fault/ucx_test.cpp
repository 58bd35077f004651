// What becomes of a UCX connection, and of the process at its end, when the other end is killed, stops, or sends
// damaged bytes. docs/security.md says the same in words.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>
#include <thread>

#include "tests/contract/transport_harness.h"
#include "tests/contract/ucx_on_loopback.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using transport::test::End;
using transport::test::pump;
using transport::test::TestFrame;

std::vector<std::string> peer(std::vector<std::string> words) {
  words.insert(words.begin(), TERRACE_TEST_UCX_PEER);
  return words;
}

// A process that answers frames.
class Server {
 public:
  explicit Server(const std::string& transport) : transport_(transport), process_(peer({"serve", transport})) {
    EXPECT_TRUE(eventually([this] { return process_.out().find('\n') != std::string::npos || !process_.running(); }));
    address_ = process_.out().substr(0, process_.out().find('\n'));
  }
  const std::string& address() const { return address_; }
  Process& process() { return process_; }
  bool answers() { return run_program(peer({"ask", transport_, address_})).exit_code == 0; }
  // What each of its descriptors is: "socket", "anon_inode:[eventpoll]", a file's path.
  std::multiset<std::string> descriptors() const {
    std::multiset<std::string> found;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(process_.pid()) + "/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(fd, gone).string();
      found.insert(target.starts_with("socket:") ? "socket" : target);
    }
    return found;
  }

 private:
  std::string transport_;
  Process process_;
  std::string address_;
};

class Ucx : public testing::Test {
 protected:
  // An end that is connected, and has had an answer.
  void connect(Server& server) {
    end_.connection = std::move(ucx_.connect(server.address(), {}, 10s)).value();
    ASSERT_TRUE(end_->send(frame_.parts()).ok());
    ASSERT_TRUE(pump({&end_}, [&] { return end_.received == 1; }));
  }

  transport::test::UcxOnLoopback ucx_;
  const TestFrame frame_{1, 5008};
  End end_;
};

TEST_F(Ucx, PeerKilled_TheConnectionCloses) {
  Server server("ucx");
  connect(server);
  server.process().kill(SIGKILL);
  ASSERT_TRUE(pump({&end_}, [&] { return end_.closed; }));
  EXPECT_EQ(end_->close_reason().code(), ErrorCode::kPeerGone);
  EXPECT_NE(end_->close_reason().text().find("lost"), std::string::npos) << end_->close_reason().text();
}

// Liveness is the owner's, whose ping stays without an answer.
TEST_F(Ucx, PeerStopped_NothingIsSaidAndCloseEndsIt) {
  Server server("ucx");
  connect(server);
  server.process().kill(SIGSTOP);
  const TestFrame large(2, 1 << 20);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(end_->send(large.parts()).ok());
  transport::test::pump_briefly({&end_});
  EXPECT_FALSE(end_.closed);
  EXPECT_LT(end_.sent.size(), 9u) << "what a stopped peer has not fetched is not sent";
  end_->close();
  ASSERT_TRUE(pump({&end_}, [&] { return end_.closed; }));
  EXPECT_EQ(end_.sent.size(), 9u) << "every send ends";
}

TEST_F(Ucx, ClientsKilledAtRandom_TheServerServesOnAndLosesNoDescriptor) {
  constexpr int kClients = 16;
  // A leak of ours is one for each client, or for each that dies early. UCX keeps a socket of its own where its
  // connecting back is refused at once, since the client has died just then (docs/adr/0023): one in some hundred
  // clients.
  constexpr std::size_t kOwn = 2;
  Server server("ucx");
  ASSERT_TRUE(server.answers());
  const std::multiset<std::string> before = server.descriptors();
  std::mt19937_64 random(4711);
  SCOPED_TRACE("seed 4711");
  for (int i = 0; i < kClients; ++i) {
    Process client(peer({"send", "ucx", server.address()}));
    if (i % 4 != 0) {
      ASSERT_TRUE(eventually([&] { return !client.out().empty(); }));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    client.kill(SIGKILL);
  }
  ASSERT_TRUE(server.answers()) << "signal " << server.process().wait(0ms).signal;
  const auto came = [&] {
    std::vector<std::string> more;
    std::ranges::set_difference(server.descriptors(), before, std::back_inserter(more));
    return more;
  };
  EXPECT_TRUE(eventually([&] { return came().size() <= kOwn; }, 30s)) << testing::PrintToString(came());
}

// ---- damaged bytes --------------------------------------------------------------------------------------------------

// Whether the server ends by a client that sends damaged bytes. The client has bounds of its own; a UCX that waits for
// what was damaged has none.
bool ends_by_damage(Server& server, const std::string& transport, std::uint64_t seed) {
  Process client(peer({"damage", transport, server.address(), std::to_string(seed)}));
  (void)eventually([&] { return !client.running() || !server.process().running(); }, 2s);
  return !server.process().running();
}

TEST(DamagedBytes, OverTcp_NeverEndTheProcess) {
  Server server("tcp");
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    ASSERT_FALSE(ends_by_damage(server, "tcp", seed)) << "seed " << seed;
    EXPECT_TRUE(server.answers()) << "seed " << seed;
  }
}

// UCX's own wire layer asserts what it reads. Were this to fail, docs/security.md and docs/adr/0023 could say better.
TEST(DamagedBytes, OverUcx_MayEndTheProcess) {
  constexpr std::uint64_t kMost = 24;
  Server server("ucx");
  for (std::uint64_t seed = 1; seed <= kMost; ++seed)
    if (ends_by_damage(server, "ucx", seed)) return;
  FAIL() << "UCX withstood " << kMost << " damaged clients: docs/security.md says that it does not";
}

}  // namespace
}  // namespace terrace::test
