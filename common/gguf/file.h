// A model in GGUF format, open for reading: one file or a set of shards, mapped, every length and extent checked.
//
// Threads  Immutable after open(); any thread may read.
// Owner    Views (keys, strings, tensor data) borrow the mapping and live as long as the File; moving it keeps them.
// Source   The GGUF specification of ggml (docs/formats.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/gguf/mapped_file.h"
#include "common/gguf/metadata.h"
#include "common/gguf/shard.h"

namespace terrace::gguf {

struct SplitKeys;

class File {
 public:
  // Opens the file, and when it is the first of a split set, all others beside it by name. Errors name the file, and
  // the key or tensor with its byte offset:
  //   kNotFound         the file or a shard is not there
  //   kInvalidArgument  not a regular file; or a shard that is not the first: the text says which to open
  //   kCorrupt          the bytes break the format, or the shards do not belong together
  //   kUnsupported      a version, byte order or tensor type that is not read
  //   kIo               the system's reason
  static Result<File> open(const std::filesystem::path& path);

  File(File&&) noexcept = default;
  File& operator=(File&&) noexcept = default;

  // general.architecture. kNotFound, kCorrupt.
  Result<std::string_view> architecture() const { return get_string("general.architecture"); }

  // Keys of the first shard. The getters are those of Metadata (metadata.h), their errors name the file too.
  const Metadata& metadata() const { return shards_[0].table.metadata; }
  const Value* find(std::string_view key) const { return metadata().find(key); }
  // How messages name a key, there or missing, and a tensor: "FILE: key K (offset N)", "FILE: tensor T (offset N)".
  std::string key_place(std::string_view key) const;
  std::string tensor_place(const TensorInfo& tensor) const;

  Result<std::uint32_t> get_u32(std::string_view key) const { return in_file(metadata().get_u32(key)); }
  Result<std::uint64_t> get_u64(std::string_view key) const { return in_file(metadata().get_u64(key)); }
  Result<float> get_f32(std::string_view key) const { return in_file(metadata().get_f32(key)); }
  Result<bool> get_bool(std::string_view key) const { return in_file(metadata().get_bool(key)); }
  Result<std::string_view> get_string(std::string_view key) const { return in_file(metadata().get_string(key)); }

  Result<std::uint32_t> get_u32_or(std::string_view key, std::uint32_t fallback) const {
    return in_file(metadata().get_u32_or(key, fallback));
  }
  Result<std::uint64_t> get_u64_or(std::string_view key, std::uint64_t fallback) const {
    return in_file(metadata().get_u64_or(key, fallback));
  }
  Result<float> get_f32_or(std::string_view key, float fallback) const {
    return in_file(metadata().get_f32_or(key, fallback));
  }
  Result<bool> get_bool_or(std::string_view key, bool fallback) const {
    return in_file(metadata().get_bool_or(key, fallback));
  }
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const {
    return in_file(metadata().get_string_or(key, fallback));
  }

  Result<std::vector<std::string_view>> get_strings(std::string_view key) const {
    return in_file(metadata().get_strings(key));
  }
  Result<std::vector<std::uint32_t>> get_u32s(std::string_view key) const { return in_file(metadata().get_u32s(key)); }
  Result<std::vector<std::int32_t>> get_i32s(std::string_view key) const { return in_file(metadata().get_i32s(key)); }
  Result<std::vector<float>> get_f32s(std::string_view key) const { return in_file(metadata().get_f32s(key)); }
  Result<std::vector<bool>> get_bools(std::string_view key) const { return in_file(metadata().get_bools(key)); }

  std::span<const TensorInfo> tensors() const { return tensors_; }  // shard by shard, in table order
  const TensorInfo* find_tensor(std::string_view name) const;       // nullptr when missing
  // kNotFound names the file and the tensor.
  Result<const TensorInfo*> get_tensor(std::string_view name) const;
  // The tensor's bytes in the mapping; `tensor` is one of tensors().
  std::span<const std::byte> data(const TensorInfo& tensor) const;

  std::uint32_t n_shards() const { return static_cast<std::uint32_t>(shards_.size()); }
  // As given to open(); the other shards lie beside it.
  const std::filesystem::path& path(std::uint32_t shard = 0) const { return shards_[shard].file.path(); }
  int fd(std::uint32_t shard = 0) const { return shards_[shard].file.fd(); }  // for pread; do not close
  std::uint32_t version() const { return shards_[0].table.version; }
  std::uint64_t file_bytes() const;  // of all shards
  std::uint64_t shard_bytes(std::uint32_t shard) const { return shards_[shard].file.bytes().size(); }
  // A shard's keys and tensor table: its bytes before the data.
  std::span<const std::byte> header(std::uint32_t shard) const;

 private:
  struct Shard {
    MappedFile file;
    ShardTable table;  // its tensors moved into tensors_
  };

  File() = default;
  static Result<Shard> open_shard(const std::filesystem::path& path);
  Status open_split_set(const SplitKeys& first);
  Status open_later_shard(std::uint32_t no, const SplitKeys& first);
  Status gather_tensors();

  template <class T>
  Result<T> in_file(Result<T> result) const {
    if (result.ok()) return result;
    return result.error().in(path().string());
  }

  std::vector<Shard> shards_;  // at least one
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices of tensors_, sorted by name
};

}  // namespace terrace::gguf
