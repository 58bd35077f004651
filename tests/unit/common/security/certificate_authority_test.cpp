#include "common/security/certificate_authority.h"

#include <gmock/gmock.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "common/security/hkdf.h"
#include "common/security/peer_certificate.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::security {
namespace {

using ::testing::HasSubstr;
using TimePoint = std::chrono::system_clock::time_point;
using std::chrono::hours;

const TimePoint kNow = std::chrono::system_clock::from_time_t(1'800'000'000);

CertificateAuthority authority_of(int byte) { return CertificateAuthority::derive(test::secret_of(byte)).value(); }

std::string hex_of_private(const PrivateKey& key) {
  BIGNUM* scalar = nullptr;
  EXPECT_EQ(EVP_PKEY_get_bn_param(key.handle(), OSSL_PKEY_PARAM_PRIV_KEY, &scalar), 1);
  std::array<std::byte, 32> bytes{};
  EXPECT_EQ(BN_bn2binpad(scalar, reinterpret_cast<unsigned char*>(bytes.data()), bytes.size()), 32);
  BN_clear_free(scalar);
  return to_hex(bytes);
}
std::string hex_of_public(const PrivateKey& key) {
  std::array<std::byte, 65> bytes{};
  std::size_t size = 0;
  EXPECT_EQ(EVP_PKEY_get_octet_string_param(key.handle(), OSSL_PKEY_PARAM_PUB_KEY,
                                            reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), &size),
            1);
  EXPECT_EQ(size, bytes.size());
  return to_hex(bytes);
}

// RFC 5869, A.1 and A.3.
TEST(Hkdf, VectorsOfTheRfc) {
  std::array<std::byte, 22> key{};
  key.fill(std::byte{0x0b});
  std::array<std::byte, 13> salt{};
  for (std::size_t i = 0; i < salt.size(); ++i) salt[i] = static_cast<std::byte>(i);
  std::array<std::byte, 10> info{};
  for (std::size_t i = 0; i < info.size(); ++i) info[i] = static_cast<std::byte>(0xf0 + i);
  std::array<std::byte, 42> out{};
  ASSERT_TRUE(hkdf_sha256(key, std::span<const std::byte>(salt), info, out).ok());
  EXPECT_EQ(to_hex(out), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  ASSERT_TRUE(hkdf_sha256(key, "", "", out).ok());
  EXPECT_EQ(to_hex(out), "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

// By Python's cryptography: d = int(HKDF(SHA256, 48, b"terrace", b"ca v1").derive(secret)) % (n - 1) + 1.
TEST(CertificateAuthority, KeyIsTheOneOfTheSecret) {
  std::array<std::byte, Secret::kBytes> rising{};
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::byte>(i);
  const CertificateAuthority of_rising = CertificateAuthority::derive(Secret(rising)).value();
  EXPECT_EQ(hex_of_private(of_rising.key()), "719ab88f44949fe7091e13b455176f13f5ddd3f7d756765f8c1399b16520fe1c");
  EXPECT_EQ(hex_of_public(of_rising.key()),
            "04085f0e28953ad0025a84e747a565ecef62b0a1ee1e069cde5ca5cf7598de7dd9c26c10bb63f9857562a32ed96551adad31cecc1f"
            "f2f099bb3523e256a3f2a95c");
  EXPECT_EQ(hex_of_private(authority_of(0xff).key()),
            "f8d08a56c3b3407a6271c4b9db13f089972a196869e477daca97967dfa945c21");
  EXPECT_EQ(hex_of_private(authority_of(0).key()), "dd0cd7a9fb5ab5e8142b1a1b78d76dcdfec319142fbb8f257d425f019f2c85c6");
}

TEST(CertificateAuthority, TwoMadeApart_VerifyEachOthersLeaves) {
  const CertificateAuthority here = authority_of(1), there = authority_of(1), stranger = authority_of(2);
  EXPECT_NE(here.certificate(), there.certificate()) << "signatures are random";
  const PrivateKey key = PrivateKey::generate().value();
  for (const Role role : {Role::kNode, Role::kCoordinator}) {
    const std::string leaf = here.issue(key, role, kNow).value();
    EXPECT_TRUE(check_chain(*key.pem(), leaf, there.certificate(), kNow).ok());
    EXPECT_TRUE(check_chain(*key.pem(), leaf, here.certificate(), kNow).ok());
    EXPECT_FALSE(check_chain(*key.pem(), leaf, stranger.certificate(), kNow).ok());
  }
}

TEST(CertificateAuthority, Leaf_SaysNameUseAndDates) {
  const CertificateAuthority authority = authority_of(1);
  const PrivateKey key = PrivateKey::generate().value(), other = PrivateKey::generate().value();
  const auto leaf_of = [&](const PrivateKey& of, Role role) {
    return read_certificate(authority.issue(of, role, kNow).value()).value();
  };
  const PeerCertificate node = leaf_of(key, Role::kNode), coordinator = leaf_of(key, Role::kCoordinator);
  EXPECT_EQ(node.dns_names, std::vector<std::string>{"node.terrace.internal"});
  EXPECT_TRUE(node.for_server && !node.for_client);
  EXPECT_TRUE(!coordinator.for_server && coordinator.for_client);
  EXPECT_EQ(node.not_before, kNow - hours(24));
  EXPECT_EQ(node.not_after, kNow + hours(397 * 24));
  EXPECT_EQ(node.key, coordinator.key);
  EXPECT_NE(node.key, leaf_of(other, Role::kNode).key);
}

TEST(CertificateAuthority, Leaf_IsValidInItsTimeAndNeverElse) {
  const CertificateAuthority authority = authority_of(1);
  const PrivateKey key = PrivateKey::generate().value();
  const std::string leaf = authority.issue(key, Role::kNode, kNow).value();
  const auto at = [&](TimePoint time) { return check_chain(*key.pem(), leaf, authority.certificate(), time); };
  EXPECT_TRUE(at(kNow - hours(23)).ok());
  EXPECT_TRUE(at(kNow + hours(396 * 24)).ok());
  EXPECT_THAT(at(kNow - hours(25)).error().text(), HasSubstr("not yet valid"));
  EXPECT_THAT(at(kNow + hours(398 * 24)).error().text(), HasSubstr("expired"));
}

// pathlen 0 and CA:FALSE: one who has a leaf cannot make others.
TEST(CertificateAuthority, LeafIssuesNothing) {
  const CertificateAuthority authority = authority_of(1);
  const PrivateKey key = PrivateKey::generate().value();
  const std::string leaf = authority.issue(key, Role::kNode, kNow).value();
  const auto dates = read_certificate(authority.certificate()).value();
  EXPECT_EQ(std::chrono::system_clock::to_time_t(dates.not_before), 1'577'836'800) << "2020";
  EXPECT_GT(dates.not_after, kNow + hours(100 * 365 * 24));
  EXPECT_FALSE(check_chain(*key.pem(), leaf, leaf, kNow).ok()) << "a leaf is no authority";
}

TEST(CheckChain, SaysWhatDoesNotFit) {
  const test::TestAuthority authority;
  const TimePoint now = std::chrono::system_clock::now();
  const auto leaf = authority.issue({}), other = authority.issue({});
  EXPECT_TRUE(check_chain(leaf.key, leaf.certificate, authority.pem(), now).ok());
  EXPECT_THAT(check_chain(other.key, leaf.certificate, authority.pem(), now).error().text(),
              HasSubstr("the key is not that of the certificate"));
  EXPECT_THAT(check_chain("", leaf.certificate, authority.pem(), now).error().text(), HasSubstr("no private key"));
  EXPECT_THAT(check_chain(leaf.key, leaf.key, authority.pem(), now).error().text(), HasSubstr("no certificate in PEM"));
  EXPECT_THAT(check_chain(leaf.key, leaf.certificate, "none", now).error().text(), HasSubstr("to trust"));
}

TEST(ReadCertificate, WhatIsNone_Corrupt) {
  for (const char* text : {"", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"})
    EXPECT_EQ(read_certificate(text).error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(read_certificate(std::string_view()).error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace terrace::security
