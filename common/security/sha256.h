// SHA-256 by OpenSSL, in one call or piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX, kept out of our headers

namespace terrace::security {

inline constexpr std::size_t kSha256Bytes = 32;
using Sha256 = std::array<std::byte, kSha256Bytes>;

// Move-only; one thread at a time.
class Sha256Hasher {
 public:
  Sha256Hasher();
  Sha256Hasher(Sha256Hasher&&) noexcept = default;
  Sha256Hasher& operator=(Sha256Hasher&&) noexcept = default;

  void update(std::span<const std::byte> bytes);
  // The digest of all bytes since the last finish(); the hasher then starts anew.
  Sha256 finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

Sha256 sha256(std::span<const std::byte> bytes);

// Two lower-case digits a byte.
std::string to_hex(std::span<const std::byte> bytes);
// Fills out; false (out is then undefined) unless hex is exactly two digits of either case for each byte of out.
bool from_hex(std::string_view hex, std::span<std::byte> out);
std::optional<Sha256> sha256_from_hex(std::string_view hex);

}  // namespace terrace::security
