#include "common/security/random.h"

#include <openssl/err.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace terrace::security {

Status random_bytes(std::span<std::byte> out) {
  constexpr std::size_t kMaxPiece = 1 << 20;  // RAND_bytes counts in int
  while (!out.empty()) {
    const std::size_t n = std::min(out.size(), kMaxPiece);
    if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(n)) != 1) {
      std::array<char, 256> reason{};
      ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
      return Error(ErrorCode::kIo, fmt::format("no random bytes from the operating system: {}", reason.data()));
    }
    out = out.subspan(n);
  }
  return {};
}

}  // namespace terrace::security
