// The bandwidth yardstick reads every byte once, whatever its streams and prefetches.
#include "kernels/cpu/read_stream/read_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "common/base/aligned_buffer.h"
#include "tests/unit/kernels/cpu/isa_names.h"

namespace terrace::kernels {
namespace {

constexpr std::size_t kBytes = 6 * kReadStreamUnit;

std::uint64_t xor_words(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(sum)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    sum ^= word;
  }
  return sum;
}

class ReadStreamTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!detect_cpu_features().has(GetParam())) GTEST_SKIP() << "this CPU lacks " << name(GetParam());
    buffer_ = AlignedBuffer::allocate(kBytes).value();
    std::mt19937_64 random(4711);
    for (std::byte& byte : buffer_.bytes()) byte = static_cast<std::byte>(random());
  }
  AlignedBuffer buffer_;
};

TEST_P(ReadStreamTest, EveryStreamsAndPrefetch_XorOfAllWords) {
  const ReadStreamFn read = read_stream_of(GetParam());
  for (const int streams : {1, 2, 4})
    for (const std::size_t prefetch : {0, 2048, 4096, 8192})
      for (const std::size_t bytes : {std::size_t{0}, kReadStreamUnit, kBytes})
        EXPECT_EQ(read({buffer_.data(), bytes, streams, prefetch}), xor_words(buffer_.bytes().first(bytes)))
            << streams << " streams, prefetch " << prefetch << ", " << bytes << " bytes";
}

// A read left out would make the machine look faster than it is.
TEST_P(ReadStreamTest, AnyWordChanged_ChangesTheResult) {
  const ReadStreamFn read = read_stream_of(GetParam());
  for (const int streams : {1, 2, 4}) {
    const std::uint64_t before = read({buffer_.data(), kBytes, streams, 0});
    for (std::size_t at = 0; at < kBytes; at += sizeof(std::uint64_t)) {
      buffer_.data()[at] ^= std::byte{1};
      EXPECT_EQ(read({buffer_.data(), kBytes, streams, 0}), before ^ 1) << "word at " << at;
      buffer_.data()[at] ^= std::byte{1};
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ReadStreamTest, testing::ValuesIn(test::every_isa()),
                         [](const auto& tested) { return test::isa_identifier(tested.param); });

}  // namespace
}  // namespace terrace::kernels
