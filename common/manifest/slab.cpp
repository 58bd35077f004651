#include "common/manifest/slab.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/gguf/bytes.h"

namespace terrace::manifest {
namespace {

constexpr std::string_view kLayoutTag = "terrace slab 1";

const LayerExperts& checked_layer(const ModelExperts& model, std::uint32_t layer, std::uint32_t expert) {
  TERRACE_CHECK(layer < model.layers.size() && expert < model.layers[layer].shape.n_experts,
                "a slab that the model does not have");
  return model.layers[layer];
}

std::array<const PartLocation*, 3> parts(const LayerExperts& layer) { return {&layer.gate, &layer.up, &layer.down}; }

}  // namespace

Error slab_read_error(const gguf::File& file, const PartLocation& part, std::uint64_t offset, const std::string& reason,
                      ErrorCode code) {
  return Error(code, fmt::format("{}: tensor {}: cannot read at offset {}: {}", file.path(part.shard).string(),
                                 part.tensor, offset, reason));
}

Status read_slab_part(const gguf::File& file, const PartLocation& part, std::uint32_t expert, std::uint64_t begin,
                      std::span<std::byte> out) {
  std::uint64_t offset = part.file_offset + expert * part.stride + begin;
  while (!out.empty()) {
    const ::ssize_t n = ::pread(file.fd(part.shard), out.data(), out.size(), static_cast<::off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return slab_read_error(file, part, offset, std::generic_category().message(errno), ErrorCode::kIo);
    if (n == 0) return slab_read_error(file, part, offset, "the file has become shorter", ErrorCode::kCorrupt);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status read_slab(const gguf::File& file, const ModelExperts& model, std::uint32_t layer, std::uint32_t expert,
                 std::span<std::byte> out) {
  const LayerExperts& experts = checked_layer(model, layer, expert);
  TERRACE_CHECK(out.size() == experts.shape.slab_bytes(), "a buffer of another size than the slab");
  for (const PartLocation* part : parts(experts)) {
    TERRACE_RETURN_IF_ERROR(read_slab_part(file, *part, expert, 0, out.first(part->bytes)));
    out = out.subspan(part->bytes);
  }
  return {};
}

SlabHasher::SlabHasher(const LayerShape& shape) {
  std::string head(kLayoutTag);
  for (const TensorType type : {shape.types.gate, shape.types.up, shape.types.down}) gguf::append(head, type);
  gguf::append(head, shape.d_model);
  gguf::append(head, shape.ff);
  hasher_.update(gguf::as_bytes(head));
}

Sha256 slab_id_of(const LayerShape& shape, std::span<const std::byte> slab) {
  SlabHasher hasher(shape);
  hasher.update(slab);
  return hasher.finish();
}

Result<Sha256> slab_id_in(const gguf::File& file, const ModelExperts& model, std::uint32_t layer, std::uint32_t expert,
                          std::span<std::byte> buffer) {
  const LayerExperts& experts = checked_layer(model, layer, expert);
  SlabHasher hasher(experts.shape);
  for (const PartLocation* part : parts(experts)) {
    for (std::uint64_t begin = 0; begin < part->bytes; begin += buffer.size()) {
      const auto piece = buffer.first(std::min<std::uint64_t>(buffer.size(), part->bytes - begin));
      TERRACE_RETURN_IF_ERROR(read_slab_part(file, *part, expert, begin, piece));
      hasher.update(piece);
    }
  }
  return hasher.finish();
}

}  // namespace terrace::manifest
