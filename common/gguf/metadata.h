// The keys of a GGUF file and their values, read leniently: converters write one number in different integer widths.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/value.h"

namespace terrace::gguf {

// Borrows the mapping that its keys and values lie in. Immutable after add() and seal(), then any thread may read.
//
// Every get_* names the key in its error and returns
//   kNotFound   the key is not there
//   kCorrupt    its type is another one (named), or the number does not fit (value and range named)
// get_*_or gives `fallback` for a missing key only.
class Metadata {
 public:
  void add(KeyValue entry) { entries_.push_back(entry); }
  // After the last add(). kCorrupt: a key stands twice.
  Status seal();

  std::span<const KeyValue> entries() const { return entries_; }  // in file order
  const Value* find(std::string_view key) const;                  // nullptr when missing
  std::string place(std::string_view key) const;                  // key_place() (text.h) of a key, there or missing

  Result<std::uint32_t> get_u32(std::string_view key) const;
  Result<std::uint64_t> get_u64(std::string_view key) const;
  Result<float> get_f32(std::string_view key) const;  // f32 or f64; may be NaN or infinite
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;  // into the mapping; any bytes

  Result<std::uint32_t> get_u32_or(std::string_view key, std::uint32_t fallback) const;
  Result<std::uint64_t> get_u64_or(std::string_view key, std::uint64_t fallback) const;
  Result<float> get_f32_or(std::string_view key, float fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;

  Result<std::vector<std::string_view>> get_strings(std::string_view key) const;  // into the mapping; any bytes
  Result<std::vector<std::uint32_t>> get_u32s(std::string_view key) const;        // from any integer width
  Result<std::vector<std::int32_t>> get_i32s(std::string_view key) const;         // from any integer width
  Result<std::vector<float>> get_f32s(std::string_view key) const;                // f32 or f64
  Result<std::vector<bool>> get_bools(std::string_view key) const;

 private:
  std::vector<KeyValue> entries_;
  std::vector<std::uint32_t> by_key_;  // indices of entries_, sorted by key
};

}  // namespace terrace::gguf
