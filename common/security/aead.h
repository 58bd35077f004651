// Sealing: encrypts a message and binds it to its key, its number and a header, so that a changed, moved or repeated
// one does not open (RFC 5116, by OpenSSL).
//
// One object per key and direction; only the number changes from message to message, so its context is made once and
// nothing is allocated afterwards. A key must never seal two messages under one number: the callers count.
// Threads  One at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/result.h"
#include "common/security/cipher.h"
#include "common/security/key.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX, kept out of our headers

namespace terrace::security {

inline constexpr std::size_t kTagBytes = 16;  // of every cipher

namespace detail {
struct FreeCipherContext {
  void operator()(evp_cipher_ctx_st* context) const;
};
using CipherContext = std::unique_ptr<evp_cipher_ctx_st, FreeCipherContext>;
}  // namespace detail

class Sealer {
 public:
  // `cipher` is not kPlain. kUnsupported: OpenSSL has no such cipher here.
  static Result<Sealer> create(Cipher cipher, const Key& key);

  // One message: begin(), its bytes piece by piece, finish(). `number` was not used with this key before.
  void begin(std::uint64_t number, std::span<const std::byte> header);
  // Encrypts `bytes` to `out`, which has room for as many; both may be the same memory, else they lie apart. Less than
  // 2^31 bytes.
  void add(std::span<const std::byte> bytes, std::byte* out);
  void finish(std::span<std::byte, kTagBytes> tag);

 private:
  explicit Sealer(detail::CipherContext context) : context_(std::move(context)) {}
  detail::CipherContext context_;
};

class Opener {
 public:
  static Result<Opener> create(Cipher cipher, const Key& key);

  // Decrypts `body` in place. False: it is not what was sealed with this key under `number` with `header` and `tag`;
  // `body` is then undefined and must not be looked at.
  [[nodiscard]] bool open(std::uint64_t number, std::span<const std::byte> header, std::span<std::byte> body,
                          std::span<const std::byte, kTagBytes> tag);

 private:
  explicit Opener(detail::CipherContext context) : context_(std::move(context)) {}
  detail::CipherContext context_;
};

}  // namespace terrace::security
