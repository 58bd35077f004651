#include "coordinator/kv/cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/check.h"

namespace terrace::kv {

using kernels::kKvBlockPositions;

// K and V of one head take a multiple of 32 * 8 * 2 bytes, so that all bases keep the block's alignment.
static_assert(kKvBlockPositions * 8 * bytes(kernels::KvType::kF16) % 64 == 0);

std::uint64_t CacheShape::bytes_per_position() const {
  return std::uint64_t{n_layers} * n_kv_heads * (std::uint64_t{key_dim} + value_dim) * kernels::bytes(type);
}

Cache::Cache(const CacheShape& shape, std::uint32_t context, std::uint32_t max_streams)
    : shape_(shape),
      context_(context),
      key_bytes_(kKvBlockPositions * shape.key_dim * kernels::bytes(shape.type)),
      head_bytes_(key_bytes_ + kKvBlockPositions * shape.value_dim * kernels::bytes(shape.type)),
      streams_(max_streams) {
  TERRACE_CHECK(shape.key_dim % 8 == 0 && shape.value_dim % 8 == 0, "head dimensions are multiples of 8");
}

Result<std::uint32_t> Cache::open() {
  const auto stream = std::ranges::find_if(streams_, [](const Stream& s) { return !s.open; });
  if (stream == streams_.end())
    return Error(ErrorCode::kBusy, fmt::format("all {} streams are open; close one first", streams_.size()));
  stream->open = true;
  stream->length = 0;
  // Growing by a block then moves no table, but for contexts that few texts fill and any file may claim.
  stream->blocks.reserve(blocks_for(std::min(context_, kPositionsSetAside)));
  return static_cast<std::uint32_t>(stream - streams_.begin());
}

void Cache::close(std::uint32_t stream) {
  TERRACE_CHECK(is_open(stream), "only an open stream is closed");
  keep_blocks(streams_[stream], 0);
  streams_[stream] = Stream{};
}

Status Cache::reserve(std::uint32_t stream, std::uint32_t positions) {
  TERRACE_CHECK(is_open(stream), "only an open stream grows");
  if (positions > context_)
    return Error(ErrorCode::kContextFull,
                 fmt::format("position {} is beyond the context of {} positions", positions - 1, context_));
  Stream& s = streams_[stream];
  const std::size_t had = s.blocks.size();
  while (s.blocks.size() < blocks_for(positions)) {
    auto* block = static_cast<std::byte*>(::operator new(shape_.block_bytes(), kAlignment, std::nothrow));
    if (block == nullptr) {
      keep_blocks(s, had);
      return Error(
          ErrorCode::kOutOfMemory,
          fmt::format(
              "no memory for a cache block of {} bytes ({} bytes of cache are in use); close other programs or streams",
              shape_.block_bytes(), bytes_in_use()));
    }
    s.blocks.emplace_back(block);
    ++n_blocks_;
  }
  return {};
}

void Cache::commit(std::uint32_t stream, std::uint32_t positions) {
  TERRACE_CHECK(is_open(stream), "only an open stream stores");
  Stream& s = streams_[stream];
  TERRACE_CHECK(blocks_for(positions) <= s.blocks.size(), "stored positions were reserved");
  keep_blocks(s, blocks_for(positions));
  s.length = positions;
}

void Cache::keep_blocks(Stream& stream, std::size_t n_blocks) {
  n_blocks_ -= stream.blocks.size() - n_blocks;
  stream.blocks.resize(n_blocks);
}

void Cache::bases(std::uint32_t stream, std::uint32_t layer, std::uint32_t kv_head, std::size_t n_blocks,
                  const std::byte** k, const std::byte** v) const {
  const std::vector<Block>& blocks = streams_[stream].blocks;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    const HeadBlock head = head_of(blocks[i].get(), layer, kv_head);
    k[i] = head.k;
    v[i] = head.v;
  }
}

}  // namespace terrace::kv
