// Keys out of a key: HKDF with SHA-256 (RFC 5869).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "common/base/result.h"

namespace terrace::security {

// Fills `out`, at most 8,160 bytes, with extract and expand of `key`. `salt` and `info` may be empty, and are bytes.
// Same inputs, same bytes. kInternal: OpenSSL refuses; out must then not be used. Any thread.
Status hkdf_sha256(std::span<const std::byte> key, std::span<const std::byte> salt, std::span<const std::byte> info,
                   std::span<std::byte> out);
inline Status hkdf_sha256(std::span<const std::byte> key, std::string_view salt, std::string_view info,
                          std::span<std::byte> out) {
  return hkdf_sha256(key, std::as_bytes(std::span(salt)), std::as_bytes(std::span(info)), out);
}

}  // namespace terrace::security
