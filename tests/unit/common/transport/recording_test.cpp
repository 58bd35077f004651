// Recordings: what travelled is in them, and a file that lies is refused by entry and offset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "common/transport/loopback/loopback.h"
#include "common/transport/recording/recorder.h"
#include "common/wire/messages.h"
#include "tests/contract/transport_harness.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::transport {
namespace {

using namespace test;
using terrace::test::read_file;
using terrace::test::TempDir;
using terrace::test::write_file;
using testing::HasSubstr;

// A few frames each way over a recorded loopback link, in a file.
class RecordingFile : public testing::Test {
 protected:
  void SetUp() override {
    auto recorder = Recorder::create(path_);
    ASSERT_TRUE(recorder.ok()) << recorder.error().text();
    Link link =
        make_link(std::make_unique<RecordingTransport>(std::make_shared<LoopbackTransport>(), *recorder), {}, {});
    for (const auto& frame : frames_) ASSERT_TRUE(link.client->send(frame->parts()).ok());
    ASSERT_TRUE(link.server->send(frames_[0]->parts()).ok());
    ASSERT_TRUE(pump({&link.client, &link.server},
                     [&] { return link.server.received == frames_.size() && link.client.received == 1; }));
    wire::Hello hello;
    hello.largest_frame = 4096;
    wire::FrameBuilder builder;
    builder.begin({.type = wire::FrameType::kHello, .session = 7, .sequence = 1});
    wire::add_hello(builder, hello);
    ASSERT_TRUE(link.client->send(builder.finish()).ok());
    ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == frames_.size() + 1; }));
    link.client->close();
    ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.client.closed && link.server.closed; }));
    ASSERT_TRUE((*recorder)->finish().ok());
    bytes_ = read_file(path_);
  }

  static Result<Recording> parse(const std::string& bytes) {
    auto buffer = AlignedBuffer::allocate(bytes.size());
    std::ranges::copy(std::as_bytes(std::span(bytes)), buffer->data());
    return Recording::parse(std::move(buffer).value());
  }
  template <class T>
  std::string with(std::size_t at, T value) const {
    std::string bytes = bytes_;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  }

  const TempDir dir_;
  const std::filesystem::path path_ = dir_ / "link.frames";
  std::vector<std::unique_ptr<TestFrame>> frames_ = [] {
    std::vector<std::unique_ptr<TestFrame>> made;
    for (const std::size_t size : {64u, 80u, 160u}) made.push_back(make_frame(made.size() + 1, size));
    return made;
  }();
  std::string bytes_;
};

TEST_F(RecordingFile, EveryFrameIsThereInItsOrderWithItsWay) {
  const auto recording = Recording::read(path_);
  ASSERT_TRUE(recording.ok()) << recording.error().text();
  EXPECT_EQ(recording->n_connections(), 2u);
  std::size_t sent = 0, received = 0, closed = 0;
  std::chrono::nanoseconds before{0};
  for (const RecordedEntry& entry : recording->entries()) {
    EXPECT_GE(entry.time, before);
    before = entry.time;
    closed += entry.event == RecordedEvent::kClosed;
    if (entry.frame.empty()) continue;
    std::size_t& n = entry.event == RecordedEvent::kSent ? sent : received;
    if (entry.connection == 0 && entry.event == RecordedEvent::kSent && n < frames_.size()) {
      EXPECT_TRUE(std::ranges::equal(entry.frame, frames_[n]->contiguous()));
    }
    ++n;
  }
  EXPECT_EQ(sent, frames_.size() + 2);
  EXPECT_EQ(received, frames_.size() + 2);
  EXPECT_EQ(closed, 2u);
}

TEST_F(RecordingFile, EveryTruncation_IsRefusedOrEndsAtAnEntry) {
  std::size_t whole = 0;
  for (std::size_t n = 0; n < bytes_.size(); ++n) {
    const auto recording = parse(bytes_.substr(0, n));
    if (recording.ok()) {
      ++whole;
      continue;
    }
    EXPECT_EQ(recording.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(recording.error().text(), HasSubstr("recording: "));
  }
  EXPECT_EQ(whole, parse(bytes_)->entries().size()) << "after the file's header, and after each entry but the last";
}

TEST_F(RecordingFile, FieldsThatLie_AreRefusedByEntryAndOffset) {
  constexpr std::size_t kFirst = 16, kSecond = 48;  // both connect
  constexpr std::size_t kThird = 80;                // a frame of 64 bytes was sent
  const std::pair<std::string, const char*> cases[] = {
      {with(0, 'X'), "does not begin with TRRCFRMS"},
      {with<std::uint32_t>(8, 2), "version 2, this build reads 1"},
      {with<std::uint32_t>(12, 1), "reserved bytes at offset 12"},
      {with<std::uint32_t>(kFirst + 8, 1), "entry 0 at offset 16: connection 1, 0 are known"},
      {with<std::uint32_t>(kSecond + 8, ~0u), "entry 1 at offset 48: connection 4294967295"},
      {with<std::uint8_t>(kFirst + 12, 1), "entry 0 at offset 16: connection 0, 0 are known"},
      {with<std::uint8_t>(kThird + 12, 4), "entry 2 at offset 80: event 4 is not known"},
      {with<std::uint8_t>(kThird + 12, 255), "event 255 is not known"},
      {with<std::uint8_t>(kThird + 13, 1), "reserved bytes are not zero"},
      {with<std::uint64_t>(kThird + 24, 1), "reserved bytes are not zero"},
      {with<std::uint32_t>(kThird + 16, 0), "a frame of 0 bytes with event 1"},
      {with<std::uint32_t>(kFirst + 16, 64), "a frame of 64 bytes with event 0"},
      {with<std::uint32_t>(kThird + 16, 0xffffffff), "a frame of 4294967295 bytes"},
      {with<std::uint32_t>(kThird + 16, 0x40000000), "are left: cut short"},
      {with<std::uint32_t>(kThird + 16, 63), "padding is not zero"},
      {with<std::uint64_t>(kFirst, ~std::uint64_t{0} >> 1), "its time is before that of the entry before"},
  };
  for (const auto& [bytes, says] : cases) {
    const auto recording = parse(bytes);
    ASSERT_FALSE(recording.ok()) << says;
    EXPECT_THAT(recording.error().text(), HasSubstr(says));
  }
}

TEST_F(RecordingFile, EveryByteSpoilt_IsRefusedOrAnotherRecordingInsideTheSameBytes) {
  for (std::size_t at = 0; at < bytes_.size(); ++at) {
    for (const unsigned mask : {0x01u, 0x80u, 0xffu}) {
      std::string bytes = bytes_;
      bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(mask));
      const auto recording = parse(bytes);
      std::size_t total = 0;
      if (recording.ok())
        for (const RecordedEntry& entry : recording->entries()) total += entry.frame.size();
      EXPECT_LE(total, bytes.size());
    }
  }
}

TEST_F(RecordingFile, FileThatIsNotThereOrNoFile_NamesThePath) {
  const auto missing = Recording::read(dir_ / "no.frames");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().text(), HasSubstr("no.frames"));
  write_file(dir_ / "short.frames", "TRRC");
  const auto cut = Recording::read(dir_ / "short.frames");
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().text(), HasSubstr("short.frames: recording: 4 bytes"));
  EXPECT_FALSE(Recording::read(dir_.path()).ok());
  EXPECT_FALSE(Recorder::create(dir_ / "no" / "folder").ok());
}

TEST(RecorderOnAFullDisk, FinishSaysSoAndTheTrafficGoesOn) {
  const auto recorder = Recorder::create("/dev/full");
  if (!recorder.ok()) GTEST_SKIP() << recorder.error().text();
  Link link = make_link(std::make_unique<RecordingTransport>(std::make_shared<LoopbackTransport>(), *recorder), {}, {});
  const auto frame = make_frame(1, 1 << 16);
  ASSERT_TRUE(link.client->send(frame->parts()).ok());
  ASSERT_TRUE(pump({&link.client, &link.server}, [&] { return link.server.received == 1; }));
  const Status status = (*recorder)->finish();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().text(), HasSubstr("/dev/full"));
}

}  // namespace
}  // namespace terrace::transport
