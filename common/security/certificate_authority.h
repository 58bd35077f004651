// The certificate authority that a secret stands for. Every machine that has the secret derives the same authority, so
// nothing but the secret is copied (docs/security.md).
//
// The key: d = (HKDF-SHA-256(secret, salt "terrace", info "ca v1", 48 bytes) mod (n - 1)) + 1 on P-256. 48 bytes are
// 128 bits more than n has, so the remainder is as good as even. Certificates of two authorities made apart differ in
// their signatures alone, and each verifies the other's leaves.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "common/security/secret.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY and X509, kept out of our headers
struct x509_st;

namespace terrace::security {

// Which end of a link a certificate is for.
enum class Role { kNode, kCoordinator };
const char* name(Role role);  // "node", "coordinator"

// The name in every leaf of a secret's authority. No host has it: it is compared, never looked up.
inline constexpr const char* kLinkName = "node.terrace.internal";

// How long a leaf is valid before and after it is issued: clocks differ, and a leaf is renewed long before its end.
inline constexpr std::chrono::hours kLeafBackdate{24};
inline constexpr std::chrono::hours kLeafLifetime{397 * 24};

// A key pair on P-256. Move-only.
class PrivateKey {
 public:
  // New and random. kInternal: OpenSSL refuses.
  static Result<PrivateKey> generate();
  // PKCS#8 in PEM, not encrypted.
  Result<std::string> pem() const;
  evp_pkey_st* handle() const { return key_.get(); }

  struct Free {
    void operator()(evp_pkey_st* key) const;
  };
  explicit PrivateKey(evp_pkey_st* owned) : key_(owned) {}

 private:
  std::unique_ptr<evp_pkey_st, Free> key_;
};

// One thread at a time. Move-only.
class CertificateAuthority {
 public:
  static Result<CertificateAuthority> derive(const Secret& secret);

  // Its own certificate in PEM: subject and dates fixed, serial number 1, pathlen 0.
  const std::string& certificate() const { return pem_; }
  // A leaf for the public half of `key`, in PEM, valid around `now`.
  Result<std::string> issue(const PrivateKey& key, Role role, std::chrono::system_clock::time_point now) const;

  const PrivateKey& key() const { return key_; }

 private:
  struct Free {
    void operator()(x509_st* certificate) const;
  };
  using OwnCertificate = std::unique_ptr<x509_st, Free>;
  CertificateAuthority(PrivateKey key, OwnCertificate certificate, std::string pem)
      : key_(std::move(key)), certificate_(std::move(certificate)), pem_(std::move(pem)) {}

  PrivateKey key_;
  OwnCertificate certificate_;
  std::string pem_;
};

}  // namespace terrace::security
