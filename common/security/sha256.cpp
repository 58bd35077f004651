#include "common/security/sha256.h"

#include <openssl/evp.h>

#include "common/base/check.h"

namespace terrace::security {
namespace {

// SHA-256 of the default provider fails only without memory or with a broken installation: nothing can go on then.
void require(bool ok) { TERRACE_CHECK(ok, "OpenSSL refuses to compute SHA-256"); }

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Sha256Hasher::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256Hasher::Sha256Hasher() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256Hasher::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

Sha256 Sha256Hasher::finish() {
  Sha256 digest;
  require(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1);
  require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  return digest;
}

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256Hasher hasher;
  hasher.update(bytes);
  return hasher.finish();
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    hex += kDigits[std::to_integer<std::size_t>(b >> 4)];
    hex += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return hex;
}

bool from_hex(std::string_view hex, std::span<std::byte> out) {
  if (hex.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

std::optional<Sha256> sha256_from_hex(std::string_view hex) {
  Sha256 digest;
  if (!from_hex(hex, digest)) return std::nullopt;
  return digest;
}

}  // namespace terrace::security
