#include "common/security/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/base/check.h"

namespace terrace::security {

Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Sha256 code;
  unsigned length = 0;
  // As with SHA-256 itself: fails only without memory or with a broken installation.
  const bool done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                         reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                         reinterpret_cast<unsigned char*>(code.data()), &length) != nullptr;
  TERRACE_CHECK(done && length == code.size(), "OpenSSL refuses to compute an HMAC");
  return code;
}

}  // namespace terrace::security
