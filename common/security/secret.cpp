#include "common/security/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <string_view>

#include "common/security/private_file.h"
#include "common/security/random.h"
#include "common/security/sha256.h"

namespace terrace::security {
namespace {

constexpr std::size_t kMaxFileBytes = 4096;

// The one line, or which line is wrong and how.
Result<Secret> parse(std::string_view text, const std::filesystem::path& file) {
  const auto wrong = [&](int line, std::string_view what) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: {}; a secret file is one line of {} hexadecimal digits, as `terrace secret new` "
                             "prints it",
                             file.string(), line, what, 2 * Secret::kBytes));
  };
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::array<std::byte, Secret::kBytes> bytes{};
  if (line.empty()) return wrong(1, "the line is empty");
  if (line.size() != 2 * Secret::kBytes) return wrong(1, fmt::format("the line has {} characters", line.size()));
  if (!from_hex(line, bytes)) return wrong(1, "a character is no hexadecimal digit");
  if (end != std::string_view::npos && end + 1 < text.size()) return wrong(2, "something follows");
  Secret secret(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return secret;
}

}  // namespace

Result<Secret> Secret::read(const std::filesystem::path& file) {
  TERRACE_ASSIGN_OR_RETURN(std::string text, read_private_file(file, kMaxFileBytes));
  auto secret = parse(text, file);
  security::wipe(text);
  return secret;
}

Result<Secret> Secret::make() {
  std::array<std::byte, kBytes> bytes{};
  TERRACE_RETURN_IF_ERROR(random_bytes(bytes));
  Secret secret(bytes);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return secret;
}

std::string Secret::line() const { return to_hex(bytes_); }

void Secret::wipe() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

}  // namespace terrace::security
