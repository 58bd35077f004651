#include "coordinator/serve/scheduler/slot_file.h"

#include <fmt/format.h>

#define XXH_STATIC_LINKING_ONLY  // declares the state's layout, so that it needs no heap
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <type_traits>
#include <utility>

#include "common/gguf/output_file.h"

namespace terrace::serve {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian and so must the host be");

constexpr std::array<char, 8> kMagic = {'T', 'R', 'C', 'S', 'L', 'O', 'T', '\0'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMostModelBytes = 255;

// As it lies in the file; behind it the model's name, the tokens (i32 each), the XXH3-64 of all that, the blocks, and
// their XXH3-64.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t n_tokens = 0;
  std::uint32_t n_layers = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;
  std::uint32_t element_bytes = 0;
  std::uint32_t block_positions = kernels::kKvBlockPositions;
  std::uint64_t block_bytes = 0;
  std::uint64_t model_bytes = 0;
};
static_assert(std::has_unique_object_representations_v<Header>);

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Header header_of(const SlotFileIdentity& identity) {
  Header header;
  header.n_layers = identity.shape.n_layers;
  header.n_kv_heads = identity.shape.n_kv_heads;
  header.key_dim = identity.shape.key_dim;
  header.value_dim = identity.shape.value_dim;
  header.element_bytes = static_cast<std::uint32_t>(kernels::bytes(identity.shape.type));
  header.block_bytes = identity.shape.block_bytes();
  header.model_bytes = identity.model.size();
  return header;
}

}  // namespace

Result<std::uint64_t> write_slot_file(const std::filesystem::path& file, const SlotFileIdentity& identity,
                                      std::span<const std::int32_t> tokens,
                                      FunctionRef<std::span<const std::byte>(std::size_t)> block,
                                      FunctionRef<Status()> before_replacing) {
  TERRACE_ASSIGN_OR_RETURN(gguf::OutputFile out, gguf::OutputFile::create(file));
  Hash hash;
  const auto write = [&](std::span<const std::byte> bytes) {
    hash.add(bytes);
    return out.write(bytes);
  };
  Header header = header_of(identity);
  header.n_tokens = static_cast<std::uint32_t>(tokens.size());
  TERRACE_RETURN_IF_ERROR(write(bytes_of(header)));
  TERRACE_RETURN_IF_ERROR(write(std::as_bytes(std::span(identity.model))));
  TERRACE_RETURN_IF_ERROR(write(std::as_bytes(tokens)));
  TERRACE_RETURN_IF_ERROR(out.write(bytes_of(hash.value())));
  hash = {};
  const std::size_t n_whole = tokens.size() / kernels::kKvBlockPositions;
  for (std::size_t i = 0; i < n_whole; ++i) TERRACE_RETURN_IF_ERROR(write(block(i)));
  if (const std::size_t rest = tokens.size() % kernels::kKvBlockPositions; rest > 0) {
    const auto last = block(n_whole);
    std::vector<std::byte> copy(last.begin(), last.end());
    identity.shape.clear_beyond(copy, rest);
    TERRACE_RETURN_IF_ERROR(write(copy));
  }
  TERRACE_RETURN_IF_ERROR(out.write(bytes_of(hash.value())));
  const std::uint64_t bytes = out.offset();
  TERRACE_RETURN_IF_ERROR(before_replacing());
  TERRACE_RETURN_IF_ERROR(out.commit());
  return bytes;
}

// ---- reading --------------------------------------------------------------------------------------------------------

struct SlotFile::Reader {
  std::filesystem::path path;
  std::ifstream in;
  Hash hash;

  Error error(ErrorCode code, std::string_view what) const {
    return Error(code, fmt::format("{}: {}", path.string(), what));
  }
  Status read(std::span<std::byte> bytes) {
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!in) return error(in.eof() ? ErrorCode::kCorrupt : ErrorCode::kIo, "it ends early or cannot be read");
    hash.add(bytes);
    return {};
  }
  // The hash of what was read since the last one follows.
  Status check_hash(const char* of_what) {
    const std::uint64_t expected = hash.value();
    std::uint64_t found = 0;
    TERRACE_RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(&found, 1))));
    hash = {};
    if (found == expected) return {};
    return error(ErrorCode::kCorrupt, fmt::format("the hash of its {} does not fit: damaged", of_what));
  }
};

SlotFile::SlotFile(std::unique_ptr<Reader> reader) : reader_(std::move(reader)) {}
SlotFile::SlotFile(SlotFile&&) noexcept = default;
SlotFile::~SlotFile() = default;

Result<SlotFile> SlotFile::open(const std::filesystem::path& path, const SlotFileIdentity& identity,
                                std::uint32_t vocabulary, std::uint32_t context) {
  auto made = std::make_unique<Reader>();
  Reader& reader = *made;
  reader.path = path;
  std::error_code failed;
  const auto there = std::filesystem::status(path, failed);
  if (!std::filesystem::exists(there)) return reader.error(ErrorCode::kNotFound, "there is no such file");
  if (!std::filesystem::is_regular_file(there)) return reader.error(ErrorCode::kInvalidArgument, "is no regular file");
  const std::uint64_t size = std::filesystem::file_size(path, failed);
  reader.in.open(path, std::ios::binary);
  if (failed || !reader.in) return reader.error(ErrorCode::kIo, "it cannot be opened for reading");

  Header header;
  TERRACE_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kMagic) return reader.error(ErrorCode::kCorrupt, "is no saved slot");
  if (header.version != kVersion)
    return reader.error(ErrorCode::kUnsupported,
                        fmt::format("has version {} of saved slots; this build reads {}", header.version, kVersion));
  if (header.model_bytes > kMostModelBytes || header.n_tokens == 0)
    return reader.error(ErrorCode::kCorrupt, "its header is out of range");
  std::string model(header.model_bytes, '\0');
  TERRACE_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(model))));
  Header ours = header_of(identity);
  ours.n_tokens = header.n_tokens;
  if (model != identity.model || std::memcmp(&ours, &header, sizeof header) != 0)
    return reader.error(ErrorCode::kRefused,
                        "it was saved with another model or another --kv; restore it where it was saved");
  if (header.n_tokens > context)
    return reader.error(ErrorCode::kContextFull,
                        fmt::format("holds {} tokens and the context {}; raise --ctx-size", header.n_tokens, context));
  const std::uint64_t expected = sizeof header + model.size() + std::uint64_t{header.n_tokens} * sizeof(std::int32_t) +
                                 2 * sizeof(std::uint64_t) +
                                 kv::Cache::blocks_for(header.n_tokens) * identity.shape.block_bytes();
  if (size != expected)
    return reader.error(ErrorCode::kCorrupt, fmt::format("has {} bytes; its header says {}", size, expected));

  SlotFile file(std::move(made));
  file.bytes_ = size;
  file.tokens_.resize(header.n_tokens);
  TERRACE_RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(file.tokens_))));
  TERRACE_RETURN_IF_ERROR(reader.check_hash("tokens"));
  if (std::ranges::any_of(file.tokens_,
                          [&](std::int32_t id) { return id < 0 || static_cast<std::uint32_t>(id) >= vocabulary; }))
    return reader.error(ErrorCode::kCorrupt, "holds a token that the model does not have");
  return file;
}

Status SlotFile::read_blocks(FunctionRef<std::span<std::byte>(std::size_t)> block) {
  for (std::size_t i = 0; i < kv::Cache::blocks_for(tokens_.size()); ++i)
    TERRACE_RETURN_IF_ERROR(reader_->read(block(i)));
  return reader_->check_hash("keys and values");
}

}  // namespace terrace::serve
