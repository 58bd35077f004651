// A generation is recorded once; then the recorded coordinator is played to a real node, and the recorded node to a
// real coordinator. Both give what they gave then, and a recording in which one bit of a sum is another shows.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "common/transport/loopback/loopback.h"
#include "common/transport/recording/recorder.h"
#include "common/transport/recording/replay.h"
#include "common/transport/sealed/sealed.h"
#include "common/wire/messages.h"
#include "tests/e2e/support/process.h"
#include "tests/fault/fault_world.h"
#include "tests/fault/recorded_control.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace {
namespace replay_test {

using test::FaultWorld;
using test::NodeInProcess;
using testing::IsEmpty;
using transport::RecordedEvent;
using transport::Recording;
using transport::Replay;

class ReplayOfAGeneration : public testing::Test {
 protected:
  void SetUp() override {
    const auto recorder = test::must(transport::Recorder::create(file_));
    const auto loopback = std::make_shared<transport::LoopbackTransport>();
    NodeInProcess first(*loopback, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
    NodeInProcess second(*loopback, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
    // Above the proofs: the file has the frames and no handshake.
    transport::RecordingTransport recording(std::make_shared<transport::SealedTransport>(loopback), recorder);
    const auto run = world_.generate({.node = first, .transport = recording, .proves = true}, {second, *loopback});
    ASSERT_TRUE(run.ok()) << run.error().text();
    EXPECT_EQ(test::difference(world_.expected(), *run), std::nullopt) << "recording changes nothing";
    ASSERT_TRUE(recorder->finish().ok());
  }
  Recording read() const { return test::must(Recording::read(file_)); }
  static std::string all(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }

  const test::TempDir dir_;
  const std::filesystem::path file_ = dir_ / "first-node.frames";
  test::UnhurriedClock clock_;
  FaultWorld world_{&clock_};
};

TEST_F(ReplayOfAGeneration, Recording_HoldsEveryFrameBothWaysAndNoHandshake) {
  const Recording recording = read();
  EXPECT_EQ(recording.n_connections(), 3u);
  std::size_t batches = 0, replies = 0, hellos = 0;
  for (const transport::RecordedEntry& entry : recording.entries()) {
    if (entry.frame.empty()) continue;
    const wire::Frame frame = test::must(wire::decode_frame(entry.frame));
    const bool sent = entry.event == RecordedEvent::kSent;
    batches += sent && frame.header.type == wire::FrameType::kBatch;
    replies += !sent && frame.header.type == wire::FrameType::kReply;
    EXPECT_LE(frame.header.type, wire::FrameType::kSlab) << wire::name(frame.header.type);
    hellos += frame.header.type == wire::FrameType::kHello;
  }
  EXPECT_EQ(hellos, 3u);
  EXPECT_GT(batches, 4u);
  EXPECT_GE(replies, batches);
}

struct Played {
  bool finished = false;
  std::size_t compared = 0;
  std::vector<std::string> differences;
};

// The recorded coordinator to a real node that has the same share.
Played play_to_node(Recording recording) {
  test::StandInNode node(FaultWorld::kBatch, FaultWorld::kRanges, test::small_limits());
  const auto replay = test::must(Replay::create(std::move(recording), node.identity()));
  node.serve(*replay);
  replay->play();
  EXPECT_TRUE(test::eventually([&] { return replay->finished() || !replay->differences().empty(); }));
  return {replay->finished(), replay->compared(), replay->differences()};
}

TEST_F(ReplayOfAGeneration, RecordedCoordinatorToARealNode_TheSameReplies) {
  const Played played = play_to_node(read());
  EXPECT_THAT(played.differences, IsEmpty()) << all(played.differences);
  EXPECT_TRUE(played.finished);
  EXPECT_GT(played.compared, 8u);
}

TEST_F(ReplayOfAGeneration, RecordedNodeToARealCoordinator_TheSameBatchesAndTokens) {
  const auto replay = test::must(Replay::create(read(), test::RecordedControl::identity()));
  const auto loopback = std::make_shared<transport::LoopbackTransport>();
  NodeInProcess second(*loopback, test::small_limits(), Waiting::kSpinThenPark, test::brief_farewell());
  const auto run = world_.generate(std::make_unique<test::RecordedControl>(), *replay, {second, *loopback});
  ASSERT_TRUE(run.ok()) << run.error().text();
  EXPECT_EQ(test::difference(world_.expected(), *run), std::nullopt);
  EXPECT_THAT(replay->differences(), IsEmpty()) << all(replay->differences());
  EXPECT_TRUE(replay->finished());
}

void reseal(std::span<std::byte> frame) {
  const std::uint64_t zero = 0;
  std::memcpy(frame.data() + 56, &zero, sizeof zero);
  const std::uint64_t checksum = XXH3_64bits(frame.data(), frame.size());
  std::memcpy(frame.data() + 56, &checksum, sizeof checksum);
}

TEST_F(ReplayOfAGeneration, OneBitOfARecordedSumIsAnother_TheNodeIsSeenToDiffer) {
  auto bytes = test::must(AlignedBuffer::allocate(std::filesystem::file_size(file_)));
  const std::string file = test::read_file(file_);
  std::memcpy(bytes.data(), file.data(), file.size());
  const Recording whole = read();
  // The last reply's last byte of sums, under a checksum that is right.
  const auto entries = whole.entries();
  for (std::size_t i = entries.size(); i-- > 0;) {
    const auto frame = wire::decode_frame(entries[i].frame);
    if (!frame.ok() || frame->header.type != wire::FrameType::kReply) continue;
    const std::string_view found(reinterpret_cast<const char*>(entries[i].frame.data()), entries[i].frame.size());
    const std::size_t at = file.rfind(found);
    ASSERT_NE(at, std::string::npos);
    const auto& sums = frame->find(wire::SectionTag::kSums)->data;
    const auto offset = static_cast<std::size_t>(sums.data() - entries[i].frame.data()) + 1;
    bytes.bytes()[at + offset] ^= std::byte{1};
    reseal(bytes.bytes().subspan(at, entries[i].frame.size()));
    break;
  }
  const Played played = play_to_node(test::must(Recording::parse(std::move(bytes))));
  ASSERT_EQ(played.differences.size(), 1u);
  EXPECT_THAT(played.differences[0], testing::HasSubstr("its section sums differs at byte 1"));
}

}  // namespace replay_test
}  // namespace terrace
