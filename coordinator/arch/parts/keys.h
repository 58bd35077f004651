// An architecture's metadata keys, read and checked. Every error names the file, the key, what was found and what is
// allowed.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/gguf/file.h"

namespace terrace::arch {

struct CountRange {
  std::uint32_t least = 1;
  std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
};

// Keys below "<prefix>.". Borrows the file.
class Keys {
 public:
  Keys(const gguf::File& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string name(std::string_view suffix) const { return prefix_ + "." + std::string(suffix); }
  bool has(std::string_view suffix) const { return file_.find(name(suffix)) != nullptr; }

  // kNotFound: missing and no fallback. kCorrupt: another type or out of the range.
  Result<std::uint32_t> count(std::string_view suffix, CountRange range,
                              std::optional<std::uint32_t> fallback = std::nullopt) const;
  // The same for a key that may be an array with one entry a layer; kUnsupported: the layers differ.
  Result<std::uint32_t> uniform_count(std::string_view suffix, std::uint32_t n_layers, CountRange range,
                                      std::optional<std::uint32_t> fallback = std::nullopt) const;
  // Finite and above zero.
  Result<float> positive(std::string_view suffix, std::optional<float> fallback = std::nullopt) const;

  // kCorrupt: some float key below the prefix (an element of an array too) is NaN or infinite.
  Status all_floats_finite() const;
  // kUnsupported: the key is there and says anything but `neutral` (a number; a bool counts as 0 or 1).
  Status is_neutral(std::string_view suffix, double neutral) const;

  // "FILE: key K (offset N) is V; <allowed>"
  Error bad(ErrorCode code, std::string_view suffix, std::string_view allowed) const;

 private:
  const gguf::File& file_;
  std::string prefix_;
};

}  // namespace terrace::arch
