// The ciphers that seal data connections (docs/wire.md 12), and which two machines agree on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::security {

enum class Cipher : std::uint8_t {
  kPlain = 0,  // nothing is sealed
  kAes256Gcm = 1,
  kChaCha20Poly1305 = 2,
};

const char* name(Cipher cipher);  // "plain", "aes-256-gcm", "chacha20-poly1305"
std::optional<Cipher> cipher_from_name(std::string_view name);

// Whether this CPU computes AES and GCM's products by instructions of their own. Without them AES costs many times what
// ChaCha20 does.
bool has_aes_instructions();

// What one end takes, best first: ciphers if it seals, else kPlain alone. AES only on a CPU with instructions for it.
std::vector<Cipher> accepted_ciphers(bool seal, bool aes_instructions = has_aes_instructions());
// The first of `ours` that is also theirs. None: one end seals and the other does not.
std::optional<Cipher> agree(std::span<const Cipher> ours, std::span<const Cipher> theirs);

}  // namespace terrace::security
