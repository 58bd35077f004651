#include "common/security/openssl_handles.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <array>

namespace terrace::security {

Error openssl_error(ErrorCode code, std::string_view what) {
  std::array<char, 256> reason{};
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  if (first == 0) return Error(code, std::string(what));
  ERR_error_string_n(first, reason.data(), reason.size());
  return Error(code, fmt::format("{}: {}", what, reason.data()));
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

OwnedBio reader_of(std::string_view text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace terrace::security
