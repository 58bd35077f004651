#include "common/security/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "common/security/random.h"

namespace terrace::security {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Source: FIPS 180-2, appendix B.
TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(to_hex(sha256(bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(bytes(""))), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(bytes(std::string(1000000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, Pieces_EqualTheWhole_AndFinishStartsAnew) {
  Sha256Hasher hasher;
  for (int round = 0; round < 2; ++round) {
    hasher.update(bytes("a"));
    hasher.update(bytes(""));
    hasher.update(bytes("bc"));
    EXPECT_EQ(hasher.finish(), sha256(bytes("abc")));
  }
}

TEST(Hex, RoundTripAndRefusals) {
  const Sha256 digest = sha256(bytes("x"));
  EXPECT_EQ(sha256_from_hex(to_hex(digest)), digest);
  EXPECT_FALSE(sha256_from_hex(to_hex(digest).substr(2)));
  EXPECT_FALSE(sha256_from_hex("g" + to_hex(digest).substr(1)));
  std::array<std::byte, 1> one{};
  EXPECT_TRUE(from_hex("fF", one));
  EXPECT_EQ(one[0], std::byte{255});
}

TEST(Random, FillsAndDiffers) {
  std::array<std::byte, 32> a{}, b{};
  ASSERT_TRUE(random_bytes(a).ok());
  ASSERT_TRUE(random_bytes(b).ok());
  EXPECT_NE(a, b);  // equal once in 2^256
}

}  // namespace
}  // namespace terrace::security
