#include "common/security/aead.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace terrace::security {
namespace {

constexpr std::size_t kNonceBytes = 12;

// What OpenSSL refuses after a context was made is a bug of ours, or memory is gone.
void require(bool ok) { TERRACE_CHECK(ok, "OpenSSL refuses to seal or open"); }

const EVP_CIPHER* find(Cipher cipher) {
  switch (cipher) {
    case Cipher::kAes256Gcm:
      return EVP_aes_256_gcm();
    case Cipher::kChaCha20Poly1305:
      return EVP_chacha20_poly1305();
    case Cipher::kPlain:
      break;
  }
  return nullptr;
}

Result<detail::CipherContext> make_context(Cipher cipher, const Key& key, bool encrypt) {
  detail::CipherContext context(EVP_CIPHER_CTX_new());
  const EVP_CIPHER* const algorithm = find(cipher);
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.bytes().data());
  if (context == nullptr || algorithm == nullptr ||
      EVP_CipherInit_ex2(context.get(), algorithm, bytes, nullptr, encrypt ? 1 : 0, nullptr) != 1) {
    ERR_clear_error();
    return Error(ErrorCode::kUnsupported,
                 fmt::format("the system's OpenSSL cannot seal with {}: is it the default provider?", name(cipher)));
  }
  return context;
}

// Four zero bytes and the number, little-endian.
std::array<unsigned char, kNonceBytes> nonce_of(std::uint64_t number) {
  std::array<unsigned char, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof(number); ++i) nonce[4 + i] = static_cast<unsigned char>(number >> 8 * i);
  return nonce;
}

unsigned char* octets(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* octets(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

// Key and algorithm stay; a new number makes the context ready for a message.
void begin_message(evp_cipher_ctx_st* context, std::uint64_t number, std::span<const std::byte> header) {
  const auto nonce = nonce_of(number);
  require(EVP_CipherInit_ex2(context, nullptr, nullptr, nonce.data(), -1, nullptr) == 1);
  int length = 0;
  require(EVP_CipherUpdate(context, nullptr, &length, octets(header.data()), static_cast<int>(header.size())) == 1);
}

void add_bytes(evp_cipher_ctx_st* context, std::span<const std::byte> bytes, std::byte* out) {
  if (bytes.empty()) return;  // OpenSSL takes a null pointer for a header
  int length = 0;
  require(EVP_CipherUpdate(context, octets(out), &length, octets(bytes.data()), static_cast<int>(bytes.size())) == 1);
  TERRACE_CHECK(static_cast<std::size_t>(length) == bytes.size(), "a stream cipher gives as many bytes as it takes");
}

}  // namespace

void detail::FreeCipherContext::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

Result<Sealer> Sealer::create(Cipher cipher, const Key& key) {
  TERRACE_ASSIGN_OR_RETURN(auto context, make_context(cipher, key, true));
  return Sealer(std::move(context));
}

void Sealer::begin(std::uint64_t number, std::span<const std::byte> header) {
  begin_message(context_.get(), number, header);
}

void Sealer::add(std::span<const std::byte> bytes, std::byte* out) { add_bytes(context_.get(), bytes, out); }

void Sealer::finish(std::span<std::byte, kTagBytes> tag) {
  std::array<unsigned char, 16> none{};
  int length = 0;
  require(EVP_CipherFinal_ex(context_.get(), none.data(), &length) == 1 && length == 0);
  require(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1);
}

Result<Opener> Opener::create(Cipher cipher, const Key& key) {
  TERRACE_ASSIGN_OR_RETURN(auto context, make_context(cipher, key, false));
  return Opener(std::move(context));
}

bool Opener::open(std::uint64_t number, std::span<const std::byte> header, std::span<std::byte> body,
                  std::span<const std::byte, kTagBytes> tag) {
  begin_message(context_.get(), number, header);
  add_bytes(context_.get(), body, body.data());
  std::array<unsigned char, kTagBytes> expected;  // OpenSSL takes it without const
  std::memcpy(expected.data(), tag.data(), tag.size());
  require(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(expected.size()),
                              expected.data()) == 1);
  std::array<unsigned char, 16> none{};
  int length = 0;
  return EVP_CipherFinal_ex(context_.get(), none.data(), &length) == 1;
}

}  // namespace terrace::security
