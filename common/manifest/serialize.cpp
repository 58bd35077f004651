// The manifest's bytes: docs/formats.md. All numbers are little-endian u32.
//   "TERRMANI"  version  d_model  n_experts  top_k  shift  n_layers  length and bytes of the architecture's name
//   per layer   gate, up and down type, ff, n_experts
//   slab ids    [n_layers, n_experts] of 32 bytes
//   hash        SHA-256 of all before
#include <algorithm>

#include "common/gguf/bytes.h"
#include "common/gguf/corrupt.h"
#include "common/gguf/text.h"
#include "common/manifest/manifest.h"

namespace terrace::manifest {
namespace {

constexpr std::string_view kManifestMagic = "TERRMANI";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kMaxNameBytes = 64;
constexpr std::uint64_t kLayerBytes = 5 * sizeof(std::uint32_t);

Status check_range(const char* what, std::uint32_t value, std::uint32_t least, std::uint32_t most) {
  if (value >= least && value <= most) return {};
  return gguf::corrupt(fmt::format("{} is {}; {} to {} is the range", what, value, least, most));
}

Status read_u32(gguf::ByteReader& in, const char* what, std::uint32_t least, std::uint32_t most, std::uint32_t& out) {
  TERRACE_ASSIGN_OR_RETURN(out, in.read<std::uint32_t>(what));
  return check_range(what, out, least, most);
}

Status read_head(gguf::ByteReader& in, Manifest& manifest, std::uint32_t& n_layers) {
  TERRACE_ASSIGN_OR_RETURN(const auto magic, in.take(kManifestMagic.size(), "the magic"));
  if (gguf::as_text(magic) != kManifestMagic) return gguf::corrupt("no manifest: the magic differs");
  TERRACE_ASSIGN_OR_RETURN(const auto version, in.read<std::uint32_t>("the version"));
  if (version != kVersion)
    return Error(ErrorCode::kUnsupported, fmt::format("version {} of the format; {} can be read", version, kVersion));
  std::uint32_t shift = 0;
  std::uint32_t name_bytes = 0;
  TERRACE_RETURN_IF_ERROR(read_u32(in, "d_model", 1, kMaxWidth, manifest.d_model));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "n_experts", 1, kMaxExperts, manifest.n_experts));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "top_k", 1, manifest.n_experts, manifest.top_k));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "shift", kMinShift, kMaxShift, shift));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "n_layers", 1, kMaxLayers, n_layers));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "the name's length", 1, kMaxNameBytes, name_bytes));
  TERRACE_ASSIGN_OR_RETURN(const auto name, in.take(name_bytes, "the architecture's name"));
  if (!gguf::is_printable(gguf::as_text(name))) return gguf::corrupt("the architecture's name is not printable UTF-8");
  manifest.shift = static_cast<int>(shift);
  manifest.architecture = std::string(gguf::as_text(name));
  return {};
}

Status read_type(gguf::ByteReader& in, TensorType& out) {
  TERRACE_ASSIGN_OR_RETURN(const auto id, in.read<std::uint32_t>("a type"));
  const TensorTypeInfo* type = find_tensor_type(id);
  if (type == nullptr) return gguf::corrupt(fmt::format("type {} is unknown", id));
  out = type->type;
  return {};
}

Result<LayerShape> read_layer(gguf::ByteReader& in, const Manifest& manifest) {
  LayerShape shape;
  shape.d_model = manifest.d_model;
  TERRACE_RETURN_IF_ERROR(read_type(in, shape.types.gate));
  TERRACE_RETURN_IF_ERROR(read_type(in, shape.types.up));
  TERRACE_RETURN_IF_ERROR(read_type(in, shape.types.down));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "ff", 0, kMaxWidth, shape.ff));
  TERRACE_RETURN_IF_ERROR(read_u32(in, "a layer's n_experts", 0, manifest.n_experts, shape.n_experts));
  if (shape.n_experts != 0 && shape.n_experts != manifest.n_experts)
    return gguf::corrupt(fmt::format("{} experts; 0 or {} are allowed", shape.n_experts, manifest.n_experts));
  TERRACE_RETURN_IF_ERROR(check_layer_shape(shape));
  return shape;
}

Status read_hash(gguf::ByteReader& in, std::span<const std::byte> bytes, Sha256& out) {
  const auto hashed = bytes.first(in.offset());
  TERRACE_ASSIGN_OR_RETURN(const auto hash, in.take(security::kSha256Bytes, "the hash"));
  std::copy(hash.begin(), hash.end(), out.begin());
  if (security::sha256(hashed) != out) return gguf::corrupt("the hash does not fit the bytes: damaged");
  return {};
}

Result<Manifest> parse_unnamed(std::span<const std::byte> bytes) {
  gguf::ByteReader in(bytes);
  Manifest manifest;
  std::uint32_t n_layers = 0;
  TERRACE_RETURN_IF_ERROR(read_head(in, manifest, n_layers));
  // Bounded by 2^16 * 2^16 * 32 bytes, so nothing wraps.
  const std::uint64_t n_ids = std::uint64_t{n_layers} * manifest.n_experts;
  const std::uint64_t expected = n_layers * kLayerBytes + n_ids * security::kSha256Bytes + security::kSha256Bytes;
  if (in.left() != expected)
    return gguf::corrupt(fmt::format("{} bytes follow the head; {} layers of {} experts take {}", in.left(), n_layers,
                                     manifest.n_experts, expected));
  for (std::uint32_t i = 0; i < n_layers; ++i) {
    auto layer = read_layer(in, manifest);
    if (!layer.ok()) return layer.error().in(fmt::format("layer {}", i));
    manifest.layers.push_back(*layer);
  }
  manifest.slab_ids.resize(n_ids);
  for (Sha256& id : manifest.slab_ids) {
    TERRACE_ASSIGN_OR_RETURN(const auto from, in.take(id.size(), "a slab id"));
    std::copy(from.begin(), from.end(), id.begin());
  }
  TERRACE_RETURN_IF_ERROR(read_hash(in, bytes, manifest.hash));
  return manifest;
}

}  // namespace

std::string serialize(const Manifest& manifest) {
  std::string out(kManifestMagic);
  gguf::append(out, kVersion);
  for (const std::uint32_t number :
       {manifest.d_model, manifest.n_experts, manifest.top_k, static_cast<std::uint32_t>(manifest.shift),
        manifest.n_layers(), static_cast<std::uint32_t>(manifest.architecture.size())})
    gguf::append(out, number);
  out += manifest.architecture;
  for (const LayerShape& layer : manifest.layers) {
    for (const TensorType type : {layer.types.gate, layer.types.up, layer.types.down}) gguf::append(out, type);
    gguf::append(out, layer.ff);
    gguf::append(out, layer.n_experts);
  }
  for (const Sha256& id : manifest.slab_ids) out += gguf::as_text(id);
  out += gguf::as_text(security::sha256(gguf::as_bytes(out)));
  return out;
}

Result<Manifest> parse(std::span<const std::byte> bytes) {
  auto manifest = parse_unnamed(bytes);
  if (!manifest.ok()) return manifest.error().in("manifest");
  return manifest;
}

}  // namespace terrace::manifest
