#include "common/security/constant_time.h"

#include <openssl/crypto.h>

namespace terrace::security {

bool constant_time_equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace terrace::security
