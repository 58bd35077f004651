// Foreign bytes: each sample frame cut at every length and spoilt at every byte, and bytes at random. The address
// sanitizer watches that nothing outside the frame is read; what is accepted must keep its promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/common/wire/foreign_frame.h"
#include "tests/unit/common/wire/frames.h"
#include "tests/unit/common/wire/sample_frames.h"

namespace terrace::wire {
namespace mutation_test {

using test::FrameBytes;
using test::kLimits;
using test::sample_frames;

bool read_any(const FrameBytes& bytes) { return test::read_foreign_frame(bytes.view(), kLimits); }

TEST(ForeignBytes, SamplesAsTheyAre_AreAccepted) {
  for (const FrameBytes& frame : sample_frames()) EXPECT_TRUE(read_any(frame));
}

TEST(ForeignBytes, EveryTruncation_IsRefused) {
  for (const FrameBytes& frame : sample_frames())
    for (std::size_t n = 0; n < frame.size(); ++n)
      ASSERT_FALSE(decode_frame(FrameBytes(frame.view().first(n)).view()).ok()) << n << " of " << frame.size();
}

// As a peer would do it on purpose: the length in the header says what is there.
TEST(ForeignBytes, EveryTruncationWithLengthAndChecksumMadeRight_IsRefused) {
  for (const FrameBytes& frame : sample_frames()) {
    for (std::size_t n = kHeaderBytes; n < frame.size(); n += kAlignment) {
      FrameBytes cut(frame.view().first(n));
      cut.put<std::uint32_t>(40, static_cast<std::uint32_t>(n - kHeaderBytes));
      cut.seal();
      ASSERT_FALSE(read_any(cut)) << n << " of " << frame.size();
    }
  }
}

TEST(ForeignBytes, EveryFlippedBit_IsRefusedByTheChecksum) {
  for (const FrameBytes& frame : sample_frames()) {
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        FrameBytes spoilt(frame.view());
        spoilt.data()[at] ^= std::byte(1u << bit);
        ASSERT_FALSE(decode_frame(spoilt.view()).ok()) << "bit " << bit << " of byte " << at;
      }
    }
  }
}

TEST(ForeignBytes, EverySpoiltByteUnderARightChecksum_IsRefusedOrInRange) {
  for (const FrameBytes& frame : sample_frames()) {
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (const unsigned mask : {0x01u, 0x02u, 0x04u, 0x08u, 0x10u, 0x20u, 0x40u, 0x80u, 0xffu}) {
        FrameBytes spoilt(frame.view());
        spoilt.data()[at] ^= std::byte(mask);
        spoilt.seal();
        read_any(spoilt);
      }
    }
  }
}

TEST(ForeignBytes, ManySpoiltWordsUnderARightChecksum_AreRefusedOrInRange) {
  std::mt19937_64 random(4715);
  const auto frames = sample_frames();
  for (int run = 0; run < 20000; ++run) {  // seed 4715: a broken promise ends the program with its text
    FrameBytes spoilt(frames[random() % frames.size()].view());
    for (std::uint64_t n = random() % 4 + 1; n > 0; --n) {
      const std::uint32_t extremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, static_cast<std::uint32_t>(random())};
      spoilt.put<std::uint32_t>(random() % (spoilt.size() / 4) * 4, extremes[random() % std::size(extremes)]);
    }
    spoilt.put<std::uint32_t>(0, kMagic);
    spoilt.put<std::uint32_t>(40, static_cast<std::uint32_t>(spoilt.size() - kHeaderBytes));
    spoilt.seal();
    read_any(spoilt);
  }
}

TEST(ForeignBytes, RandomBytes_AreRefused) {
  std::mt19937_64 random(4716);
  for (int run = 0; run < 20000; ++run) {
    FrameBytes bytes(random() % 300);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes.data()[i] = std::byte(random());
    ASSERT_FALSE(decode_frame(bytes.view()).ok()) << "seed 4716, run " << run;
  }
}

}  // namespace mutation_test
}  // namespace terrace::wire
