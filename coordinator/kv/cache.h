// The keys and values of all streams, behind a block table: a stream's positions lie in blocks of
// kernels::kKvBlockPositions, each over all layers, taken from the machine as the stream grows and given back when it
// closes.
//
// Layout   A block holds, for each layer and in it for each KV head, K [key_dim, positions] and V [positions,
// value_dim]
//          as kernels/cpu/ops/ops.h lays them out. Every base is 64-byte aligned.
// Threads  One owner thread opens, closes, reserves and commits. Between two of those calls any thread may read, and
//          write through block() positions that no one else writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "common/base/result.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::kv {

struct CacheShape {
  std::uint32_t n_layers = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t key_dim = 0;    // a multiple of 8
  std::uint32_t value_dim = 0;  // a multiple of 8
  kernels::KvType type = kernels::KvType::kF16;

  std::uint64_t bytes_per_position() const;  // over all layers and heads
  std::uint64_t block_bytes() const { return bytes_per_position() * kernels::kKvBlockPositions; }
};

// One KV head of one layer of one block.
struct HeadBlock {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};

class Cache {
 public:
  // context: positions that a stream can hold; max_streams: open at once. Takes no block yet.
  Cache(const CacheShape& shape, std::uint32_t context, std::uint32_t max_streams);

  const CacheShape& shape() const { return shape_; }
  std::uint32_t context() const { return context_; }
  std::uint32_t max_streams() const { return static_cast<std::uint32_t>(streams_.size()); }
  std::uint64_t bytes_in_use() const { return n_blocks_ * shape_.block_bytes(); }

  // An open stream's table of blocks has room for so many positions, or the context if that is less; it doubles after.
  static constexpr std::uint32_t kPositionsAtOpen = 4096;

  // The lowest number that is free, below max_streams(). kBusy when all are open.
  Result<std::uint32_t> open();
  // Frees the stream's blocks. The stream is open, here and below.
  void close(std::uint32_t stream);
  bool is_open(std::uint32_t stream) const { return stream < streams_.size() && streams_[stream].open; }
  // Positions committed.
  std::uint32_t length(std::uint32_t stream) const { return streams_[stream].length; }

  // Makes positions [0, positions) writable. Nothing counts as stored before commit(). On error the stream has the
  // blocks it had. kContextFull: more positions than the context. kOutOfMemory: the machine gives no block.
  Status reserve(std::uint32_t stream, std::uint32_t positions);
  // Positions [0, positions) are stored; blocks beyond them are freed. `positions` were reserved or stored.
  void commit(std::uint32_t stream, std::uint32_t positions);
  // Forgets what was written since the last commit().
  void roll_back(std::uint32_t stream) { commit(stream, length(stream)); }

  // Where a reserved position lies; its slot in the block is position % kKvBlockPositions.
  HeadBlock block(std::uint32_t stream, std::uint32_t position, std::uint32_t layer, std::uint32_t kv_head) const {
    return head_of(streams_[stream].blocks[position / kernels::kKvBlockPositions].get(), layer, kv_head);
  }
  // Blocks that hold positions [0, positions).
  static std::size_t blocks_for(std::uint64_t positions) {
    return static_cast<std::size_t>((positions + kernels::kKvBlockPositions - 1) / kernels::kKvBlockPositions);
  }
  // k[i], v[i] = the bases of the stream's i-th block, i < n_blocks: the tables that kernels::AttentionArgs wants.
  // n_blocks were reserved.
  void bases(std::uint32_t stream, std::uint32_t layer, std::uint32_t kv_head, std::size_t n_blocks,
             const std::byte** k, const std::byte** v) const;

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct FreeBlock {
    void operator()(std::byte* block) const { ::operator delete(block, kAlignment); }
  };
  using Block = std::unique_ptr<std::byte, FreeBlock>;
  struct Stream {
    bool open = false;
    std::uint32_t length = 0;
    std::vector<Block> blocks;
  };

  HeadBlock head_of(std::byte* block, std::uint32_t layer, std::uint32_t kv_head) const {
    std::byte* k = block + (static_cast<std::size_t>(layer) * shape_.n_kv_heads + kv_head) * head_bytes_;
    return {k, k + key_bytes_};
  }
  void keep_blocks(Stream& stream, std::size_t n_blocks);

  CacheShape shape_;
  std::uint32_t context_;
  std::size_t key_bytes_;   // of K of one head of one block
  std::size_t head_bytes_;  // of K and V
  std::uint64_t n_blocks_ = 0;
  std::vector<Stream> streams_;
};

}  // namespace terrace::kv
