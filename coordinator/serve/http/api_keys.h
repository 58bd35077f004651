// The keys that open the routes of the server.
//
// Kept as hashes and compared in a time that depends on neither the key nor how much of it was right. Never logged.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/security/sha256.h"

namespace terrace::serve::http {

class ApiKeys {
 public:
  ApiKeys() = default;

  // A file with one key a line; empty lines and lines that begin with # are none. kNotFound, kIo: the file;
  // kInvalidArgument: no key in it, one with characters that no header can carry, or more than 1 MiB of them.
  static Result<ApiKeys> from_file(const std::filesystem::path& file);
  // kInvalidArgument: a character outside printable ASCII, or an empty key.
  Status add(std::string_view key);

  bool empty() const { return digests_.empty(); }
  // The place of `key` in the order of adding; a client's name that gives nothing away.
  std::optional<std::size_t> find(std::string_view key) const;

 private:
  std::vector<security::Sha256> digests_;
};

}  // namespace terrace::serve::http
