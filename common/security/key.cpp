#include "common/security/key.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/security/random.h"

namespace terrace::security {

void Key::wipe() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Result<Key> Key::make() {
  Key key;
  TERRACE_RETURN_IF_ERROR(random_bytes(key.bytes_));
  return key;
}

Key Key::from(std::span<const std::byte> bytes) {
  TERRACE_CHECK(bytes.size() == kBytes, "a key has 32 bytes");
  Key key;
  std::copy(bytes.begin(), bytes.end(), key.bytes_.begin());
  return key;
}

}  // namespace terrace::security
