// A GGUF file taken apart, so that a test can change one thing and put it together again: everything that
// gguf::Writer refuses to write.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace terrace::test {

// Value types and tensor types by their numbers in the file: a test may want one that does not exist.
namespace raw {
inline constexpr std::uint32_t kU16 = 2, kU32 = 4, kI32 = 5, kF32 = 6, kString = 8, kArray = 9, kU64 = 10;
inline constexpr std::uint32_t kTypeF32 = 0, kTypeF16 = 1, kTypeQ4_0 = 2, kTypeQ8_0 = 8, kTypeQ4_K = 12;

// Payloads, as they follow the value's type.
template <class T>
std::string number(T value) {
  static_assert(std::is_arithmetic_v<T>);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string text(const std::string& value);
// Elements as payloads; `count`: what the file says, where that is a lie.
std::string array(std::uint32_t element, const std::vector<std::string>& payloads,
                  std::optional<std::uint64_t> count = std::nullopt);
}  // namespace raw

struct RawKey {
  std::string name;
  std::uint32_t type = 0;
  std::string payload;
};

struct RawTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // the row's length first
  std::uint32_t type = 0;
  std::string data;
  std::optional<std::uint32_t> rank = std::nullopt;    // instead of dims.size()
  std::optional<std::uint64_t> offset = std::nullopt;  // instead of the true one
};

struct RawGguf {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> n_tensors, n_keys;  // instead of the true ones
  std::uint64_t alignment = 32;                    // of the layout; general.alignment is a key like any other
  std::vector<RawKey> keys;
  std::vector<RawTensor> tensors;

  // tests/data/gguf/base.gguf: qwen3moe, 1 layer of width 32, 4 experts of width 32, 2 used, 268 tokens, 14 tensors.
  static RawGguf base();

  RawKey& key(const std::string& name);  // throws where there is none, as the next ones
  RawTensor& tensor(const std::string& name);
  RawTensor take_tensor(const std::string& name);
  void drop_key(const std::string& name);
  // Replaces the key or adds it.
  void set(const std::string& name, std::uint32_t type, const std::string& payload);

  std::string bytes() const;
};

}  // namespace terrace::test
