// A fault at every frame of a whole generation, one run each: whatever happens to a node's link, the run ends in the
// expected tokens, or, where the node was not yet ready, within its limits in one error that names that node; the other
// node and the next run do not suffer, and nothing stays behind.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/transport/faulty/faulty.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"
#include "tests/fault/fault_world.h"

namespace terrace {
namespace generation_test {

using test::FaultWorld;
using test::NodeInProcess;
using testing::HasSubstr;
using testing::StartsWith;
using transport::Direction;
using transport::Fault;
using transport::FaultScript;
using transport::FaultyTransport;

constexpr std::uint64_t kMaxFrames = 400;  // a run has about 60
constexpr std::uint64_t kStride = 6;       // where each run waits for a limit
// Every frame; with a sanitizer, which takes many times as long and looks for other faults, some.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kNextFrame = 3;
#else
constexpr std::uint64_t kNextFrame = 1;
#endif

FaultScript script(const Fault& fault) { return {.seed = 4711, .faults = {fault}, .delay = {}, .jitter = {}}; }

std::shared_ptr<transport::Transport> make(bool tcp) {
  if (tcp) return std::make_shared<transport::TcpTransport>();
  return std::make_shared<transport::LoopbackTransport>();
}

// Two nodes for many runs; faults are planted into the coordinator's link to the first.
class Generation : public testing::TestWithParam<bool> {  // over tcp, else loopback
 protected:
  // One run with the fault. What it says if it fails, "" if it gave the expected tokens; what happened to the first
  // node meanwhile is in `survived_` then. Whatever the fault does shows by itself: no batch is late.
  std::string run_with(FaultyTransport& faulty) { return run_with(unhurried_, faulty, test::kAmple); }
  // The same for faults that only a limit ends.
  std::string run_with_limits(FaultyTransport& faulty) { return run_with(hurried_, faulty, test::kShort); }
  std::string run_with(const FaultWorld& world, FaultyTransport& faulty, const test::Patience& patience) {
    const auto run = world.generate({first_, faulty, patience}, {second_, *plain_});
    if (run.ok()) {
      EXPECT_EQ(test::difference(world.expected(), *run), std::nullopt) << "a wrong token";
      EXPECT_EQ(run->pairs(), run->expected_pairs);
      survived_ = run->legs.at(1);
      return "";
    }
    EXPECT_THAT(run.error().text(), StartsWith(first_.address() + ": "));
    return run.error().text();
  }
  // Afterwards both nodes are as before, and serve.
  void expect_whole() {
    EXPECT_TRUE(second_.sessions().all().empty()) << "the session with the node that was well is closed in order";
    EXPECT_TRUE(test::ends_clean(first_));
    EXPECT_TRUE(test::ends_clean(second_));
    const auto next = unhurried_.generate({first_, *plain_}, {second_, *plain_});
    ASSERT_TRUE(next.ok()) << next.error().text();
    EXPECT_EQ(test::difference(unhurried_.expected(), *next), std::nullopt);
  }

  // The fault at frame 0, 1, 2, ... until a run ends before its frame came: then every point was tried.
  template <class Check>
  void at_every_frame(Fault fault, Check check) {
    std::uint64_t failed = 0, survived = 0;
    for (fault.frame = 0; fault.frame < kMaxFrames; fault.frame += kNextFrame) {
      FaultyTransport faulty(plain_, script(fault));
      const std::string error = run_with(faulty);
      const std::string where = fmt::format("fault at frame {}", fault.frame);
      if (!error.empty()) {
        ++failed;
        check(error, where);
      } else if (survived_.state == legs::LegState::kLost) {
        check(survived_.reason, where);
        survived += survived_.hedged_pairs > 0;  // none: the link ended just behind the last answer
      }
      if (error.empty()) {
        EXPECT_NE(survived_.state, legs::LegState::kWrong) << where << ": a fault of the link is none of the node's";
      }
      expect_whole();
      if (HasFailure()) FAIL() << where << ": " << error;
      if (faulty.fired() > 0) continue;
      EXPECT_EQ(error, "");
      EXPECT_GT(failed, 3 / kNextFrame) << "hardly a frame before the first step mattered";
      EXPECT_GT(survived, 2 / kNextFrame) << "hardly a frame of a step mattered";
      return;
    }
    FAIL() << "more than " << kMaxFrames << " frames: raise the bound or look for a loop";
  }
  std::uint64_t frames_of_a_run() {
    FaultyTransport faulty(plain_, {});
    EXPECT_EQ(run_with(faulty), "");
    return faulty.frames();
  }

  test::LegWork survived_;
  test::UnhurriedClock clock_;
  const FaultWorld unhurried_{&clock_}, hurried_;
  std::shared_ptr<transport::Transport> plain_ = make(GetParam());
  NodeInProcess first_{*plain_, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell()};
  NodeInProcess second_{*plain_, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell()};
};

INSTANTIATE_TEST_SUITE_P(Transports, Generation, testing::Bool(),
                         [](const auto& test) { return test.param ? "Tcp" : "Loopback"; });

TEST_P(Generation, OneLaneCutAtEveryFrame_TheExpectedTokensOrBeforeThemANamedError) {
  at_every_frame({.kind = Fault::Kind::kCut}, [](const std::string& error, const std::string& where) {
    EXPECT_THAT(error, HasSubstr("cut by a planted fault")) << where;
    EXPECT_THAT(error, HasSubstr("lane")) << where << ": which connection";
  });
}

TEST_P(Generation, NodeCutOffAtEveryFrame_TheExpectedTokensOrBeforeThemANamedError) {
  at_every_frame({.kind = Fault::Kind::kCut, .everywhere = true},
                 [](const std::string& error, const std::string& where) {
                   EXPECT_THAT(error, HasSubstr("cut by a planted fault")) << where;
                 });
}

TEST_P(Generation, OneBitWrongInEveryFrame_NamedErrorNeverAWrongToken) {
  for (const Direction direction : {Direction::kOut, Direction::kIn})
    at_every_frame({.kind = Fault::Kind::kCorrupt, .direction = direction}, [](const auto&, const auto&) {});
}

TEST_P(Generation, FrameLostOrLinkMute_TheExpectedTokensOrBeforeThemANamedError) {
  const std::uint64_t frames = frames_of_a_run();
  std::uint64_t failed = 0, hedged = 0;
  for (const Fault::Kind kind : {Fault::Kind::kDrop, Fault::Kind::kStall}) {
    for (std::uint64_t frame = 1; frame < frames; frame += kStride) {
      FaultyTransport faulty(plain_, script({.kind = kind, .frame = frame}));
      const std::string error = run_with_limits(faulty);
      failed += !error.empty();
      hedged += error.empty() && survived_.hedged_pairs > 0;
      // Credit may travel in fewer frames than it did before, so that the last number is not reached.
      EXPECT_TRUE(faulty.fired() == 1 || error.empty()) << error;
      expect_whole();
      if (HasFailure()) FAIL() << "fault at frame " << frame;
    }
  }
  EXPECT_GT(failed + hedged, frames / kStride) << "hardly a frame mattered";
  EXPECT_GT(hedged, 2u) << "hardly a frame of a step mattered";
}

TEST_P(Generation, NodeMuteOnAllLanesInTheMiddle_TheExpectedTokens) {
  const std::uint64_t frames = frames_of_a_run();
  // Where a run is at such a frame depends on how many credits travel together: before the first step a mute node is an
  // error, and behind the last one nobody notices.
  std::uint64_t survived = 0;
  for (const std::uint64_t eighths : {4, 5, 6, 7}) {
    const Fault mute{.kind = Fault::Kind::kStall, .frame = frames * eighths / 8, .everywhere = true};
    FaultyTransport faulty(plain_, script(mute));
    const std::string error = run_with_limits(faulty);
    survived += error.empty() && survived_.hedged_pairs > 0;
  }
  EXPECT_GT(survived, 0u);
  expect_whole();
}

TEST_P(Generation, NoCreditComesBack_TheExpectedTokens) {
  node::LimitOptions one = test::small_limits();
  one.batch_frames = 1;
  one.batch_windows = 1;
  NodeInProcess narrow(*plain_, one, Waiting::kSpinThenPark, test::brief_farewell());
  // The first frames are welcomes and the credit for slabs, without which there is an error; then batches starve.
  for (std::uint64_t frame = 3; frame < kMaxFrames; ++frame) {
    const Fault starve{.kind = Fault::Kind::kStarve, .direction = Direction::kIn, .frame = frame, .everywhere = true};
    FaultyTransport faulty(plain_, script(starve));
    const auto run = hurried_.generate({narrow, faulty, test::kShort}, {second_, *plain_});
    EXPECT_TRUE(test::ends_clean(narrow));
    if (!run.ok()) {
      EXPECT_THAT(run.error().text(), StartsWith(narrow.address() + ": "));
      continue;
    }
    EXPECT_EQ(test::difference(hurried_.expected(), *run), std::nullopt);
    EXPECT_GT(run->legs.at(1).hedged_pairs, 0u);
    return;
  }
  FAIL() << "no frame before brought what all batches need";
}

TEST_P(Generation, EveryFrameDelayed_TheExpectedTokens) {
  FaultScript slow;
  slow.delay = {std::chrono::microseconds(50), std::chrono::microseconds(100)};
  slow.jitter = {std::chrono::microseconds(100), std::chrono::microseconds(500)};
  for (slow.seed = 1; slow.seed <= 5; ++slow.seed) {
    FaultyTransport faulty(plain_, slow);
    EXPECT_EQ(run_with(faulty), "") << "seed " << slow.seed;
    expect_whole();
  }
}

// ---- inside the bytes of a frame, which only a stream of bytes can be cut at ---------------------------------------

TEST(GenerationOverTcp, CutInsideEveryFrameOfTheCoordinator_TheExpectedTokensOrBeforeThemANamedError) {
  test::UnhurriedClock clock;
  const FaultWorld world(&clock);
  const auto tcp = make(true);
  NodeInProcess first(*tcp, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
  NodeInProcess second(*tcp, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
  for (std::uint64_t frame = 0; frame < kMaxFrames; frame += kNextFrame) {
    const Fault cut{
        .kind = Fault::Kind::kCut, .direction = Direction::kOut, .frame = frame, .bytes = 1 + 37 * frame % 150};
    FaultyTransport faulty(tcp, script(cut));
    const auto run = world.generate({first, faulty}, {second, *tcp});
    if (run.ok()) {
      EXPECT_EQ(test::difference(world.expected(), *run), std::nullopt);
    } else {
      EXPECT_THAT(run.error().text(), StartsWith(first.address() + ": "));
    }
    EXPECT_TRUE(test::ends_clean(first));
    if (faulty.fired() == 0) {
      ASSERT_TRUE(run.ok()) << run.error().text();
      return;
    }
    ASSERT_FALSE(HasFailure()) << "frame " << frame;
  }
  FAIL() << "more than " << kMaxFrames << " frames";
}

TEST(GenerationOverTcp, CutInsideEveryFrameOfTheNode_TheReasonSaysHowMuchCame) {
  test::UnhurriedClock clock;
  const FaultWorld world(&clock);
  const auto tcp = make(true);
  NodeInProcess second(*tcp, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
  std::uint64_t inside = 0;
  const auto count_inside = [&](const std::string& text, std::uint64_t bytes) {
    inside += text.find(fmt::format("after {} bytes of a frame", bytes)) != std::string::npos;
  };
  for (std::uint64_t frame = 0; frame < kMaxFrames; frame += kNextFrame) {
    const Fault cut{
        .kind = Fault::Kind::kCut, .direction = Direction::kOut, .frame = frame, .bytes = 1 + 41 * frame % 63};
    FaultyTransport faulty(tcp, script(cut));
    NodeInProcess first(faulty, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
    const auto run = world.generate({first, *tcp}, {second, *tcp});
    if (faulty.fired() == 0) {
      ASSERT_TRUE(run.ok()) << run.error().text();
      EXPECT_EQ(test::difference(world.expected(), *run), std::nullopt);
      EXPECT_GT(inside, 3u) << "replies at least are cut where nothing else is on its way";
      return;
    }
    if (run.ok()) {
      EXPECT_EQ(test::difference(world.expected(), *run), std::nullopt);
      count_inside(run->legs.at(1).reason, cut.bytes);
    } else {
      EXPECT_THAT(run.error().text(), StartsWith(first.address() + ": "));
      count_inside(run.error().text(), cut.bytes);
    }
    EXPECT_TRUE(test::ends_clean(first));
    ASSERT_FALSE(HasFailure()) << "frame " << frame;
  }
  FAIL() << "more than " << kMaxFrames << " frames";
}

}  // namespace generation_test
}  // namespace terrace
