// Writes one GGUF file, version 3: keys, then the tensor table, then the data as a stream, so a file may be larger
// than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/tensor_type.h"
#include "common/gguf/output_file.h"
#include "common/gguf/shard.h"

namespace terrace::gguf {

// Use: create(), add_*() and add_tensor() in any order, then write() the data of all tensors in the order declared,
// each cut as one likes, then finish(). The bytes go to "<path>.partial.XXXXXX", which finish() renames and the
// destructor removes: a half-written model is never found under its name.
//
// The add functions remember the first thing that is wrong (a key or tensor twice, a shape that the type cannot hold)
// and the next write() or finish() returns it: kInvalidArgument, naming file and key or tensor. kIo: the system's
// reason, such as a full disk, and how far it came.
// One thread at a time.
class Writer {
 public:
  static Result<Writer> create(const std::filesystem::path& path);

  Writer(Writer&&) noexcept = default;
  Writer& operator=(Writer&&) noexcept = default;

  void add_u16(std::string_view key, std::uint16_t value);
  void add_u32(std::string_view key, std::uint32_t value);
  void add_i32(std::string_view key, std::int32_t value);
  void add_u64(std::string_view key, std::uint64_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_u32s(std::string_view key, std::span<const std::uint32_t> values);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);

  // shape: 1 to 4 dimensions, the row's length first.
  void add_tensor(std::string_view name, TensorType type, std::span<const std::uint64_t> shape);

  // The next bytes of the tensors' data, gone through in the order of add_tensor(); may cross from one tensor into the
  // next. Padding between tensors is written here, not by the caller. After the first write() nothing can be added.
  Status write(std::span<const std::byte> bytes);

  // All data was written: makes the file appear under its name. kInvalidArgument: bytes are missing. Once.
  Status finish();

 private:
  explicit Writer(OutputFile file) : file_(std::move(file)) {}

  void fail(std::string text);
  void begin_key(std::string_view key, ValueType type);
  template <class T>
  void add_scalar(std::string_view key, ValueType type, T value);
  template <class T>
  void add_array(std::string_view key, ValueType element, std::span<const T> values);
  Status begin_data();

  OutputFile file_;
  std::optional<Error> error_;  // the first of the add functions
  std::string keys_;            // as they will lie in the file
  std::string table_;           // likewise
  std::vector<std::string> key_names_, tensor_names_;
  std::vector<std::uint64_t> sizes_;  // bytes of each tensor
  std::uint64_t next_offset_ = 0;     // of the next tensor, in the data section
  bool data_begun_ = false;
  std::size_t tensor_ = 0;     // the one being written
  std::uint64_t written_ = 0;  // bytes of it
};

}  // namespace terrace::gguf
