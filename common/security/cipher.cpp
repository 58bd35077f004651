#include "common/security/cipher.h"

#include <algorithm>
#include <array>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace terrace::security {

const char* name(Cipher cipher) {
  switch (cipher) {
    case Cipher::kPlain:
      return "plain";
    case Cipher::kAes256Gcm:
      return "aes-256-gcm";
    case Cipher::kChaCha20Poly1305:
      return "chacha20-poly1305";
  }
  return "unknown";
}

std::optional<Cipher> cipher_from_name(std::string_view text) {
  for (const Cipher cipher : {Cipher::kPlain, Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305})
    if (text == name(cipher)) return cipher;
  return std::nullopt;
}

bool has_aes_instructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  const unsigned long capabilities = ::getauxval(AT_HWCAP);
  return (capabilities & HWCAP_AES) != 0 && (capabilities & HWCAP_PMULL) != 0;
#else
  return false;
#endif
}

std::vector<Cipher> accepted_ciphers(bool seal, bool aes_instructions) {
  if (!seal) return {Cipher::kPlain};
  if (!aes_instructions) return {Cipher::kChaCha20Poly1305};
  return {Cipher::kAes256Gcm, Cipher::kChaCha20Poly1305};
}

std::optional<Cipher> agree(std::span<const Cipher> ours, std::span<const Cipher> theirs) {
  for (const Cipher cipher : ours)
    if (std::find(theirs.begin(), theirs.end(), cipher) != theirs.end()) return cipher;
  return std::nullopt;
}

}  // namespace terrace::security
