#include "common/security/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/params.h>

#include <array>

#include "common/security/openssl_handles.h"

namespace terrace::security {
namespace {

// OpenSSL takes what it only reads without const.
OSSL_PARAM octets(const char* name, std::span<const std::byte> bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()), bytes.size());
}

}  // namespace

Status hkdf_sha256(std::span<const std::byte> key, std::span<const std::byte> salt, std::span<const std::byte> info,
                   std::span<std::byte> out) {
  const OwnedKdf kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const OwnedKdfContext context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  char digest[] = "SHA256";
  const std::array<OSSL_PARAM, 5> parameters = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                                                octets(OSSL_KDF_PARAM_KEY, key), octets(OSSL_KDF_PARAM_SALT, salt),
                                                octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  if (!context ||
      EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(out.data()), out.size(), parameters.data()) != 1)
    return openssl_error(ErrorCode::kInternal, "a key cannot be derived");
  return {};
}

}  // namespace terrace::security
