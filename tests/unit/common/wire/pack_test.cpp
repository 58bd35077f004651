#include "common/wire/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "common/wire/pack_blocks.h"
#include "tests/test_data.h"

namespace terrace::wire {
namespace pack_test {

using Values = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

Bytes packed(const Values& y) {
  Bytes out(widest_packed_bytes(y.size()));
  out.resize(pack_row(y, out.data()));
  return out;
}

Bytes from_hex(const std::string& hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// A value that needs exactly `width` bytes, or fewer bytes with some luck.
std::int64_t random_value(std::mt19937_64& random, unsigned width) {
  return width == 0 ? 0 : static_cast<std::int64_t>(random()) >> (64 - 8 * width);
}

TEST(PackRow, ContractVectors_BothWays) {
  std::ifstream in(terrace::test::data_dir() / "contract" / "index.json");
  const auto index = nlohmann::json::parse(in);
  ASSERT_FALSE(index.at("pack").empty());
  for (const auto& vector : index.at("pack")) {
    const auto y = vector.at("y").get<Values>();
    const Bytes expected = from_hex(vector.at("hex").get<std::string>());
    EXPECT_EQ(packed(y), expected) << vector.at("hex");
    Values sums(y.size());
    const auto used = unpack_add_row(expected, sums);
    ASSERT_TRUE(used.ok()) << used.error().text();
    EXPECT_EQ(*used, expected.size());
    EXPECT_EQ(sums, y);
  }
}

TEST(PackRow, ContractExpertSums_BothWays) {
  for (const char* name : {"mixed", "mxfp4", "q3_k_mix", "q4_k_m", "q8_0"}) {
    const auto dir = terrace::test::data_dir() / "contract";
    const auto y = terrace::test::read_array<std::int64_t>(dir / (std::string(name) + ".sum.i64"));
    const auto expected = terrace::test::read_array<std::byte>(dir / (std::string(name) + ".sum.packed"));
    ASSERT_FALSE(y.empty());
    EXPECT_EQ(packed(y), expected) << name;
    Values sums(y.size());
    ASSERT_TRUE(unpack_add_row(expected, sums).ok()) << name;
    EXPECT_EQ(sums, y) << name;
  }
}

TEST(PackRow, EveryLengthAndWidth_RoundTripsAndAdds) {
  std::mt19937_64 random(4711);
  for (std::size_t n = 0; n <= 200; ++n) {
    for (unsigned width = 0; width <= 8; ++width) {
      Values y(n), sums(n), expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        y[i] = random_value(random, width);
        sums[i] = random_value(random, 6);
        expected[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sums[i]) + static_cast<std::uint64_t>(y[i]));
      }
      const Bytes bytes = packed(y);
      const auto used = unpack_add_row(bytes, sums);
      ASSERT_TRUE(used.ok()) << n << " values of width " << width << ": " << used.error().text();
      ASSERT_EQ(*used, bytes.size());
      ASSERT_EQ(sums, expected) << n << " values of width " << width;
      ASSERT_EQ(*packed_row_bytes(bytes, n), bytes.size());
    }
  }
}

TEST(PackRow, WidthsAreTheLeastAtEachEdge) {
  for (unsigned width = 1; width <= 8; ++width) {
    const auto most = static_cast<std::int64_t>((std::uint64_t{1} << (8 * width - 1)) - 1);
    const std::int64_t least = -most - 1;
    EXPECT_EQ(packed({most})[0], std::byte(width));
    EXPECT_EQ(packed({least})[0], std::byte(width));
    if (width == 8) continue;
    EXPECT_EQ(packed({most + 1})[0], std::byte(width + 1));
    EXPECT_EQ(packed({least - 1})[0], std::byte(width + 1));
  }
}

// Whatever a peer may send: any bytes as planes, of any width.
void expect_as_portable(const BlockFunctions& blocks) {
  const BlockFunctions& portable = portable_blocks();
  std::mt19937_64 random(4714);
  for (int run = 0; run < 5000; ++run) {
    const unsigned width = static_cast<unsigned>(random() % 9);
    Values y(kBlock), sums(kBlock);
    for (auto& v : y) v = random_value(random, width) >> (random() % 8);
    for (auto& v : sums) v = random_value(random, 8);
    Bytes ours(1 + 8 * kBlock), theirs(1 + 8 * kBlock);
    ASSERT_EQ(blocks.pack(y.data(), ours.data()) - ours.data(), portable.pack(y.data(), theirs.data()) - theirs.data());
    ASSERT_EQ(ours, theirs) << "seed 4714, run " << run;
    if (run % 2 == 1) {
      for (auto& b : theirs) b = std::byte(random() % 3 == 0 ? random() : random() % 2 * 255);
    }
    Values expected = sums;
    blocks.add(theirs.data() + 1, width, sums.data());
    portable.add(theirs.data() + 1, width, expected.data());
    ASSERT_EQ(sums, expected) << "seed 4714, run " << run << ", width " << width;
    ASSERT_EQ(blocks.is_least(theirs.data() + 1, width), portable.is_least(theirs.data() + 1, width))
        << "seed 4714, run " << run << ", width " << width;
  }
}

TEST(PackBlocks, Avx2_EqualsPortable) {
  if (avx2_blocks() == nullptr) GTEST_SKIP() << "this CPU has no AVX2";
  expect_as_portable(*avx2_blocks());
}

TEST(PackBlocks, Avx512_EqualsPortable) {
  if (avx512_blocks() == nullptr) GTEST_SKIP() << "this CPU has no AVX-512";
  expect_as_portable(*avx512_blocks());
}

TEST(UnpackAddRow, SumsWrapInsteadOfOverflowing) {
  Values sums{std::numeric_limits<std::int64_t>::max()};
  ASSERT_TRUE(unpack_add_row(packed({1}), sums).ok());
  EXPECT_EQ(sums[0], std::numeric_limits<std::int64_t>::min());
}

TEST(UnpackAddRow, EveryTruncation_IsRefusedAndLeavesSums) {
  std::mt19937_64 random(4712);
  Values y(150);
  for (auto& v : y) v = random_value(random, 3);
  const Bytes bytes = packed(y);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    Values sums(y.size(), 5);
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    const auto used = unpack_add_row(cut, sums);
    ASSERT_FALSE(used.ok()) << n << " bytes";
    EXPECT_EQ(used.error().code(), ErrorCode::kCorrupt);
    EXPECT_EQ(sums, Values(y.size(), 5)) << n << " bytes";
  }
}

TEST(UnpackAddRow, WidthOverEight_IsRefusedEvenInTheLastBlock) {
  Values sums(65, 5);
  Bytes bytes = packed(Values(65, 1));
  bytes[1 + 64] = std::byte{9};
  bytes.resize(bytes.size() + 9);
  const auto used = unpack_add_row(bytes, sums);
  ASSERT_FALSE(used.ok());
  EXPECT_THAT(used.error().text(), testing::HasSubstr("value 64 (byte 65) has width 9"));
  EXPECT_EQ(sums, Values(65, 5));
}

// Two forms of one row would make hashes and byte counts of replies ambiguous.
TEST(UnpackAddRow, WidthLargerThanNeeded_IsRefused) {
  for (const std::size_t n : {1u, 63u, 64u}) {
    for (unsigned width = 1; width <= 8; ++width) {
      for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{100}}) {
        const unsigned needed = value == 0 ? 0 : 1;
        Bytes bytes{std::byte(width)};
        for (unsigned plane = 0; plane < width; ++plane)
          bytes.insert(bytes.end(), n, std::byte(static_cast<std::uint64_t>(value) >> (8 * plane)));
        Values sums(n, 5);
        const auto used = unpack_add_row(bytes, sums);
        EXPECT_EQ(used.ok(), width == needed) << n << " values " << value << " at width " << width;
        if (width != needed) {
          EXPECT_EQ(sums, Values(n, 5));
        }
      }
    }
  }
}

TEST(UnpackAddRow, RandomBytes_AreRefusedOrRepackToThemselves) {
  std::mt19937_64 random(4713);
  int accepted = 0;
  for (int run = 0; run < 20000; ++run) {
    const std::size_t n = random() % 130;
    Bytes bytes(random() % 400);
    for (auto& b : bytes) b = std::byte(random());
    for (std::size_t at = 0; at < bytes.size(); at += 65) bytes[at] = std::byte(random() % 4);
    Values sums(n);
    const auto used = unpack_add_row(bytes, sums);
    if (!used.ok()) continue;
    ++accepted;
    ASSERT_LE(*used, bytes.size());
    bytes.resize(*used);
    ASSERT_EQ(packed(sums), bytes) << "seed 4713, run " << run;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace pack_test
}  // namespace terrace::wire
