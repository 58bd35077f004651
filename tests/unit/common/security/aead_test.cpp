#include "common/security/aead.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/security/hmac.h"

namespace terrace::security {
namespace {

std::vector<std::byte> from_hex_text(std::string_view hex) {
  std::vector<std::byte> bytes(hex.size() / 2);
  EXPECT_TRUE(from_hex(hex, bytes));
  return bytes;
}

// ---- HMAC ---------------------------------------------------------------------------------------------------------

// Source: RFC 4231, test cases 1, 2 and 6.
TEST(Hmac, PublishedVectors) {
  const auto text = [](std::string_view words) { return std::as_bytes(std::span(words)); };
  EXPECT_EQ(to_hex(hmac_sha256(std::vector<std::byte>(20, std::byte{0x0b}), text("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256(text("Jefe"), text("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(std::vector<std::byte>(131, std::byte{0xaa}),
                               text("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// ---- ciphers ------------------------------------------------------------------------------------------------------

struct Message {
  std::vector<std::byte> body;
  std::array<std::byte, kTagBytes> tag{};
};

Message sealed(Cipher cipher, const Key& key, std::uint64_t number, std::span<const std::byte> header,
               std::span<const std::byte> body, std::size_t piece = ~std::size_t{0}) {
  auto sealer = Sealer::create(cipher, key);
  EXPECT_TRUE(sealer.ok());
  Message message{std::vector<std::byte>(body.size()), {}};
  sealer->begin(number, header);
  for (std::size_t at = 0; at < body.size(); at += std::min(piece, body.size() - at))
    sealer->add(body.subspan(at, std::min(piece, body.size() - at)), message.body.data() + at);
  sealer->finish(message.tag);
  return message;
}

Key counting_key(unsigned first) {
  Key key;
  for (std::size_t i = 0; i < Key::kBytes; ++i) key.writable()[i] = static_cast<std::byte>(first + i);
  return key;
}

// Source: The Galois/Counter Mode of Operation (McGrew and Viega), test cases 13 and 14: key and nonce are zeros, which
// is number 0 here.
TEST(Aead, Aes256Gcm_PublishedVectors) {
  EXPECT_EQ(to_hex(sealed(Cipher::kAes256Gcm, Key(), 0, {}, {}).tag), "530f8afbc74536b9a963b4f1c4cb738b");
  const std::vector<std::byte> zeros(16);
  const Message message = sealed(Cipher::kAes256Gcm, Key(), 0, {}, zeros);
  EXPECT_EQ(to_hex(message.body), "cea7403d4d606b6e074ec5d3baf39d18");
  EXPECT_EQ(to_hex(message.tag), "d0d1c8a799996bf0265b98b5d48ab919");
}

// Source: RFC 8439, appendix A.5. Its nonce is 00000000 0102030405060708: number 0x0807060504030201, with four zero
// bytes before it.
TEST(Aead, ChaCha20Poly1305_PublishedVector) {
  const Key key = Key::from(from_hex_text("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"));
  const auto cipher_text = from_hex_text(
      "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d26b0bdb7b73c321b0100"
      "d4f03b7f355894cf332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c8559797a06ef4f0ef61c186324e2b350638"
      "3606907b6a7c02b0f9f6157b53c867e4b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523eaf4534d7f83fa115"
      "5b0047718cbc546a0d072b04b3564eea1b422273f548271a0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a6727627097a10"
      "49e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29a6ad5cb4022b02709b");
  const auto header = from_hex_text("f33388860000000000004e91");
  const auto tag = from_hex_text("eead9d67890cbb22392336fea1851f38");
  auto opener = Opener::create(Cipher::kChaCha20Poly1305, key);
  ASSERT_TRUE(opener.ok());
  std::vector<std::byte> body = cipher_text;
  std::array<std::byte, kTagBytes> expected;
  std::memcpy(expected.data(), tag.data(), tag.size());
  ASSERT_TRUE(opener->open(0x0807060504030201, header, body, expected));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(body.data()), 26), "Internet-Drafts are draft ");
  const Message again = sealed(Cipher::kChaCha20Poly1305, key, 0x0807060504030201, header, body);
  EXPECT_EQ(again.body, cipher_text);
  EXPECT_EQ(again.tag, expected);
}

class AeadOf : public testing::TestWithParam<Cipher> {
 protected:
  std::vector<std::byte> message(std::size_t bytes) const {
    std::vector<std::byte> body(bytes);
    for (std::size_t i = 0; i < bytes; ++i) body[i] = static_cast<std::byte>(i * 7 + i / 256);
    return body;
  }
  const Key key_ = counting_key(1);
  const std::vector<std::byte> header_ = std::vector<std::byte>(64, std::byte{0x5a});
};
INSTANTIATE_TEST_SUITE_P(All, AeadOf, testing::Values(Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305),
                         [](const auto& test) {
                           return test.param == Cipher::kAes256Gcm ? "Aes256Gcm" : "ChaCha20Poly1305";
                         });

TEST_P(AeadOf, PiecesOfAnySize_EqualTheWhole_AndOneContextServesManyMessages) {
  auto opener = Opener::create(GetParam(), key_);
  ASSERT_TRUE(opener.ok());
  std::uint64_t number = 0;
  for (const std::size_t bytes : {0u, 1u, 15u, 16u, 17u, 5000u}) {
    const auto body = message(bytes);
    const Message whole = sealed(GetParam(), key_, number, header_, body);
    for (const std::size_t piece : {1u, 7u, 16u, 100u}) {
      const Message pieces = sealed(GetParam(), key_, number, header_, body, piece);
      EXPECT_EQ(pieces.body, whole.body);
      EXPECT_EQ(pieces.tag, whole.tag);
    }
    auto opened = whole.body;
    ASSERT_TRUE(opener->open(number, header_, opened, whole.tag));
    EXPECT_EQ(opened, body);
    ++number;
  }
}

TEST_P(AeadOf, AnyOtherBit_DoesNotOpen) {
  const auto body = message(48);
  const Message good = sealed(GetParam(), key_, 7, header_, body);
  auto opener = Opener::create(GetParam(), key_);
  ASSERT_TRUE(opener.ok());
  const std::size_t bits = 8 * (header_.size() + good.body.size() + kTagBytes);
  for (std::size_t bit = 0; bit < bits; ++bit) {
    auto header = header_;
    Message bad = good;
    std::size_t at = bit / 8;
    std::byte* byte = nullptr;
    if (at < header.size())
      byte = &header[at];
    else if (at -= header.size(); at < bad.body.size())
      byte = &bad.body[at];
    else
      byte = &bad.tag[at - bad.body.size()];
    *byte ^= std::byte(1u << bit % 8);
    EXPECT_FALSE(opener->open(7, header, bad.body, bad.tag)) << bit;
  }
  // The context is none the worse for it.
  auto opened = good.body;
  EXPECT_TRUE(opener->open(7, header_, opened, good.tag));
  EXPECT_EQ(opened, body);
}

TEST_P(AeadOf, OtherNumberOrKey_DoesNotOpen) {
  const Message good = sealed(GetParam(), key_, 7, header_, message(32));
  for (const std::uint64_t number : {0ull, 6ull, 8ull, 7ull + (1ull << 32), 7ull << 56}) {
    auto body = good.body;
    EXPECT_FALSE(Opener::create(GetParam(), key_)->open(number, header_, body, good.tag)) << number;
  }
  auto body = good.body;
  EXPECT_FALSE(Opener::create(GetParam(), counting_key(2))->open(7, header_, body, good.tag));
}

TEST(Aead, Plain_IsNoCipher) {
  EXPECT_FALSE(Sealer::create(Cipher::kPlain, Key()).ok());
  EXPECT_EQ(Opener::create(Cipher::kPlain, Key()).error().code(), ErrorCode::kUnsupported);
}

// ---- what two ends agree on ---------------------------------------------------------------------------------------

TEST(Cipher, NamesGoBothWays) {
  for (const Cipher cipher : {Cipher::kPlain, Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305})
    EXPECT_EQ(cipher_from_name(name(cipher)), cipher);
  EXPECT_EQ(cipher_from_name("rot13"), std::nullopt);
}

TEST(Cipher, AesOnlyWhereBothHaveInstructions_NeverPlainBesideSealed) {
  const auto agreed = [](bool seal_a, bool aes_a, bool seal_b, bool aes_b) {
    return agree(accepted_ciphers(seal_a, aes_a), accepted_ciphers(seal_b, aes_b));
  };
  EXPECT_EQ(agreed(true, true, true, true), Cipher::kAes256Gcm);
  EXPECT_EQ(agreed(true, false, true, true), Cipher::kChaCha20Poly1305);
  EXPECT_EQ(agreed(true, true, true, false), Cipher::kChaCha20Poly1305);
  EXPECT_EQ(agreed(true, false, true, false), Cipher::kChaCha20Poly1305);
  EXPECT_EQ(agreed(false, true, false, true), Cipher::kPlain);
  EXPECT_EQ(agreed(true, true, false, true), std::nullopt);
  EXPECT_EQ(agreed(false, true, true, true), std::nullopt);
}

// ---- keys ---------------------------------------------------------------------------------------------------------

TEST(Key, Destroyed_LeavesNothingInItsMemory) {
  alignas(Key) std::array<std::byte, sizeof(Key)> memory;
  Key* const key = new (memory.data()) Key(counting_key(1));
  const Key other(*key);
  EXPECT_EQ(key->bytes()[3], std::byte{4});
  key->~Key();
  for (const std::byte left : memory) EXPECT_EQ(left, std::byte{0});
  EXPECT_EQ(other.bytes()[3], std::byte{4});
}

}  // namespace
}  // namespace terrace::security
