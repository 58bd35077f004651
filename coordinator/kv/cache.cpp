#include "coordinator/kv/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "common/base/check.h"

namespace terrace::kv {

using kernels::kKvBlockPositions;

// K and V of one head take a multiple of 32 * 8 * 2 bytes, so that all bases keep the block's alignment.
static_assert(kKvBlockPositions * 8 * bytes(kernels::KvType::kF16) % 64 == 0);

std::uint64_t CacheShape::bytes_per_position() const {
  return std::uint64_t{n_layers} * n_kv_heads * (std::uint64_t{key_dim} + value_dim) * kernels::bytes(type);
}

void CacheShape::clear_beyond(std::span<std::byte> block, std::size_t positions) const {
  const std::size_t element = kernels::bytes(type);
  const std::size_t unused = kKvBlockPositions - positions;
  std::byte* at = block.data();
  for (std::uint32_t head = 0; head < n_layers * n_kv_heads; ++head) {
    for (std::uint32_t d = 0; d < key_dim; ++d, at += kKvBlockPositions * element)  // K [key_dim, positions]
      std::memset(at + positions * element, 0, unused * element);
    std::memset(at + positions * value_dim * element, 0, unused * value_dim * element);  // V [positions, value_dim]
    at += kKvBlockPositions * value_dim * element;
  }
}

Cache::Cache(const CacheShape& shape, std::uint32_t context, std::uint32_t max_streams, std::uint64_t max_blocks,
             BlockPool* pool)
    : shape_(shape),
      context_(context),
      key_bytes_(kKvBlockPositions * shape.key_dim * kernels::bytes(shape.type)),
      head_bytes_(key_bytes_ + kKvBlockPositions * shape.value_dim * kernels::bytes(shape.type)),
      max_blocks_(max_blocks),
      pool_(pool),
      streams_(max_streams) {
  TERRACE_CHECK(shape.key_dim % 8 == 0 && shape.value_dim % 8 == 0, "head dimensions are multiples of 8");
}

Cache::~Cache() {
  for (Stream& stream : streams_) keep_blocks(stream, 0);
  for (Block* block : spare_) free_block(block);
}

Result<std::uint32_t> Cache::open() {
  const auto stream = std::ranges::find_if(streams_, [](const Stream& s) { return !s.open; });
  if (stream == streams_.end())
    return Error(ErrorCode::kBusy, fmt::format("all {} streams are open; close one first", streams_.size()));
  stream->open = true;
  // Growing by a block then moves no table, but for contexts that few texts fill and any file may claim.
  stream->blocks.reserve(blocks_for(std::min(context_, kPositionsSetAside)));
  return static_cast<std::uint32_t>(stream - streams_.begin());
}

Result<std::uint32_t> Cache::fork(std::uint32_t from, std::uint32_t positions) {
  TERRACE_CHECK(is_open(from) && positions <= length(from), "only stored positions are shared");
  TERRACE_ASSIGN_OR_RETURN(const std::uint32_t stream, open());
  Stream& s = streams_[stream];
  for (std::size_t i = 0; i < blocks_for(positions); ++i) hold(s, streams_[from].blocks[i]);
  s.length = positions;
  return stream;
}

void Cache::close(std::uint32_t stream) {
  TERRACE_CHECK(is_open(stream), "only an open stream is closed");
  keep_blocks(streams_[stream], 0);
  streams_[stream] = Stream{};
}

void Cache::set_resting(std::uint32_t stream, bool resting) {
  TERRACE_CHECK(is_open(stream), "only an open stream rests");
  Stream& s = streams_[stream];
  if (s.resting == resting) return;
  s.resting = resting;
  for (Block* block : s.blocks) wake(*block, !resting);
}

// One stream more, or less, that holds the block and is awake.
void Cache::wake(Block& block, bool awake) {
  if (awake && block.awake++ == 0) ++n_awake_;
  if (!awake && --block.awake == 0) --n_awake_;
}

void Cache::hold(Stream& stream, Block* block) {
  ++block->holders;
  if (!stream.resting) wake(*block, true);
  stream.blocks.push_back(block);
}

void Cache::let_go(const Stream& stream, Block* block) {
  if (!stream.resting) wake(*block, false);
  if (--block->holders != 0) return;
  free_block(block);
  --n_blocks_;
}

Result<Cache::Block*> Cache::take_block() {
  if (max_blocks_ != 0 && n_blocks_ >= max_blocks_)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("the cache's {} blocks of {} bytes are all in use; give it more memory or close streams",
                             max_blocks_, shape_.block_bytes()));
  Block* block = nullptr;
  if (!spare_.empty()) {
    block = spare_.back();
    spare_.pop_back();
  } else {
    block = block_from_machine();
  }
  if (block == nullptr)
    return Error(
        ErrorCode::kOutOfMemory,
        fmt::format(
            "no memory for a cache block of {} bytes ({} bytes of cache are in use); close other programs or streams",
            shape_.block_bytes(), bytes_in_use()));
  ++n_blocks_;
  return block;
}

Cache::Block* Cache::block_from_pool() {
  const std::optional<std::uint32_t> number = pool_->take();
  if (!number) return nullptr;
  void* memory = ::operator new(sizeof(Block), kBlockAlignment, std::nothrow);
  if (memory == nullptr) {
    pool_->give_back(*number);
    return nullptr;
  }
  Block* block = new (memory) Block;
  block->number = *number;
  return block;
}

void Cache::free_block(Block* block) {
  if (pool_ != nullptr) pool_->give_back(block->number);
  ::operator delete(block, kBlockAlignment);
}

Status Cache::copy_block(Block& to, const Block& from) {
  if (pool_ != nullptr) return pool_->copy(to.number, from.number);
  std::memcpy(to.data(), from.data(), shape_.block_bytes());
  return {};
}

Cache::Block* Cache::block_from_machine() {
  if (pool_ != nullptr) return block_from_pool();
  void* memory = ::operator new(sizeof(Block) + shape_.block_bytes(), kBlockAlignment, std::nothrow);
  return memory == nullptr ? nullptr : new (memory) Block;
}

void Cache::set_aside(std::uint32_t stream, std::uint32_t positions) {
  TERRACE_CHECK(is_open(stream), "only an open stream grows");
  const std::size_t wanted = blocks_for(std::min(positions, context_));
  for (std::size_t has = streams_[stream].blocks.size() + spare_.size(); has < wanted; ++has) {
    if (max_blocks_ != 0 && n_blocks_ + spare_.size() >= max_blocks_) return;
    Block* block = block_from_machine();
    if (block == nullptr) return;
    spare_.push_back(block);
  }
}

// The stream's next position may lie in a block that others hold: it then goes on in a copy.
Status Cache::own_last_block(Stream& stream) {
  if (stream.length % kKvBlockPositions == 0) return {};
  Block*& last = stream.blocks[stream.length / kKvBlockPositions];
  if (last->holders == 1) return {};
  TERRACE_ASSIGN_OR_RETURN(Block* const copy, take_block());
  if (const Status copied = copy_block(*copy, *last); !copied.ok()) {
    free_block(copy);
    --n_blocks_;
    return copied;
  }
  copy->steps = last->steps;
  copy->holders = 1;
  if (!stream.resting) wake(*copy, true);
  let_go(stream, last);
  last = copy;
  return {};
}

Status Cache::reserve(std::uint32_t stream, std::uint32_t positions) {
  TERRACE_CHECK(is_open(stream), "only an open stream grows");
  if (positions > context_)
    return Error(ErrorCode::kContextFull,
                 fmt::format("position {} is beyond the context of {} positions", positions - 1, context_));
  Stream& s = streams_[stream];
  if (positions <= s.length) return {};
  TERRACE_RETURN_IF_ERROR(own_last_block(s));
  const std::size_t had = s.blocks.size();
  while (s.blocks.size() < blocks_for(positions)) {
    const Result<Block*> block = take_block();
    if (!block.ok()) {
      keep_blocks(s, had);
      return block.error();
    }
    hold(s, *block);
  }
  return {};
}

void Cache::commit(std::uint32_t stream, std::uint32_t positions) {
  TERRACE_CHECK(is_open(stream), "only an open stream stores");
  Stream& s = streams_[stream];
  TERRACE_CHECK(blocks_for(positions) <= s.blocks.size(), "stored positions were reserved");
  keep_blocks(s, blocks_for(positions));
  for (std::uint32_t position = s.length; position < positions; ++position)
    s.blocks[position / kKvBlockPositions]->steps[position % kKvBlockPositions] = step_;
  s.length = positions;
}

std::uint32_t Cache::forget_since(std::uint32_t stream, std::uint64_t step) {
  TERRACE_CHECK(is_open(stream), "only an open stream forgets");
  const Stream& s = streams_[stream];
  std::uint32_t certain = 0;
  while (certain < s.length && s.blocks[certain / kKvBlockPositions]->steps[certain % kKvBlockPositions] < step)
    ++certain;
  if (certain < s.length) commit(stream, certain);
  return certain;
}

void Cache::keep_blocks(Stream& stream, std::size_t n_blocks) {
  for (std::size_t i = n_blocks; i < stream.blocks.size(); ++i) let_go(stream, stream.blocks[i]);
  stream.blocks.resize(n_blocks);
}

void Cache::bases(std::uint32_t stream, std::uint32_t layer, std::uint32_t kv_head, std::size_t n_blocks,
                  const std::byte** k, const std::byte** v) const {
  const std::vector<Block*>& blocks = streams_[stream].blocks;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    const HeadBlock head = head_of(blocks[i]->data(), layer, kv_head);
    k[i] = head.k;
    v[i] = head.v;
  }
}

}  // namespace terrace::kv
