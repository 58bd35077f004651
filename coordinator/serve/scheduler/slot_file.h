// The file of a saved slot: its tokens, and their keys and values (docs/formats.md 9).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "coordinator/kv/cache.h"

namespace terrace::serve {

// What a file belongs to: a sequence is restored only where all of it is equal.
struct SlotFileIdentity {
  std::string model;     // its hash, or another name of its bytes; at most 255 bytes
  kv::CacheShape shape;  // of the cache
};

// Replaces the file in one piece. block(i): the stream's i-th block; what lies beyond the tokens is written as zeros.
// before_replacing: called once, behind the last block; its error leaves what had the name as it was, and is the
// result. The bytes written, or kIo, kInvalidArgument (the name of no regular file).
Result<std::uint64_t> write_slot_file(const std::filesystem::path& file, const SlotFileIdentity& identity,
                                      std::span<const std::int32_t> tokens,
                                      FunctionRef<std::span<const std::byte>(std::size_t)> block,
                                      FunctionRef<Status()> before_replacing);

// A file that is being read: what it says of itself is checked before anything is made for it.
class SlotFile {
 public:
  // kNotFound, kIo, kInvalidArgument (no regular file), kCorrupt (not such a file, cut, longer, or damaged in what
  // stands before the blocks), kUnsupported (another version), kRefused (another model or cache), kContextFull (more
  // tokens than `context`). Errors name the file.
  static Result<SlotFile> open(const std::filesystem::path& file, const SlotFileIdentity& identity,
                               std::uint32_t vocabulary, std::uint32_t context);
  SlotFile(SlotFile&&) noexcept;
  SlotFile& operator=(SlotFile&&) = delete;
  ~SlotFile();

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  std::uint64_t bytes() const { return bytes_; }
  // Fills the blocks, first to last. kCorrupt: damaged; what was filled must not be used. kIo.
  Status read_blocks(FunctionRef<std::span<std::byte>(std::size_t)> block);

 private:
  struct Reader;
  explicit SlotFile(std::unique_ptr<Reader> reader);
  std::unique_ptr<Reader> reader_;
  std::vector<std::int32_t> tokens_;
  std::uint64_t bytes_ = 0;
};

}  // namespace terrace::serve
