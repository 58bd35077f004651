// The keys and values of all streams, behind a block table: a stream's positions lie in blocks of
// kernels::kKvBlockPositions, each over all layers, taken from the machine as the stream grows and given back when no
// stream holds it any more. A stream that is forked from another shares its blocks; the last one, where it is not full,
// is copied by whoever writes to it while another holds it.
//
// Layout   A block holds, for each layer and in it for each KV head, K [key_dim, positions] and V
//          [positions, value_dim] as kernels/cpu/ops/ops.h lays them out. Every base is 64-byte aligned.
// Threads  One owner thread opens, forks, closes, reserves and commits. Between two of those calls any thread may read,
//          and write through block() positions that no one else writes. stored() and room() of a stream that the owner
//          thread leaves alone may be used by another thread at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
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
  // Zeroes what a block's bytes hold beyond its first `positions`: nobody wrote that.
  void clear_beyond(std::span<std::byte> block, std::size_t positions) const;
  bool operator==(const CacheShape&) const = default;
};

// One KV head of one layer of one block.
struct HeadBlock {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};

// Blocks that lie elsewhere than in host memory, by number: a card's. One owner thread, the cache's.
class BlockPool {
 public:
  virtual ~BlockPool() = default;
  // Empty: all are taken.
  virtual std::optional<std::uint32_t> take() = 0;
  virtual void give_back(std::uint32_t block) = 0;
  // All of `from`, over all layers.
  virtual Status copy(std::uint32_t to, std::uint32_t from) = 0;
};

// Of a stream's table at open(): a longer one may move as it grows.
inline constexpr std::uint32_t kPositionsSetAside = 1u << 20;

class Cache {
 public:
  // context: positions that a stream can hold; max_streams: open at once; max_blocks: of all streams together, 0: as
  // many as the machine gives. Takes no block yet. pool: where blocks lie, borrowed; null: in host memory.
  Cache(const CacheShape& shape, std::uint32_t context, std::uint32_t max_streams, std::uint64_t max_blocks = 0,
        BlockPool* pool = nullptr);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  const CacheShape& shape() const { return shape_; }
  // False: blocks lie in a pool, and what gives addresses (block(), bases(), stored(), room()) is not for this cache.
  bool in_host_memory() const { return pool_ == nullptr; }
  std::uint32_t context() const { return context_; }
  std::uint32_t max_streams() const { return static_cast<std::uint32_t>(streams_.size()); }
  std::uint64_t max_blocks() const { return max_blocks_; }
  // A block that several streams share counts once.
  std::uint64_t bytes_in_use() const { return n_blocks_ * shape_.block_bytes(); }
  // Of blocks that only resting streams hold.
  std::uint64_t bytes_resting() const { return (n_blocks_ - n_awake_) * shape_.block_bytes(); }

  // The lowest number that is free, below max_streams(). kBusy when all are open.
  Result<std::uint32_t> open();
  // A stream that holds the first `positions` of `from`, which has stored as many; no byte is copied. kBusy as open().
  Result<std::uint32_t> fork(std::uint32_t from, std::uint32_t positions);
  // Lets go of the stream's blocks. The stream is open, here and below.
  void close(std::uint32_t stream);
  // A resting stream is kept in case its positions are wanted again: for bytes_resting(). Streams open awake.
  void set_resting(std::uint32_t stream, bool resting);
  bool is_open(std::uint32_t stream) const { return stream < streams_.size() && streams_[stream].open; }
  // Positions committed.
  std::uint32_t length(std::uint32_t stream) const { return streams_[stream].length; }

  // Makes positions [length, positions) writable. Nothing counts as stored before commit(). On error the stream holds
  // what it held. kContextFull: more positions than the context. kOutOfMemory: max_blocks are in use, or the machine
  // gives none.
  Status reserve(std::uint32_t stream, std::uint32_t positions);
  // Takes memory now for the stream to grow to `positions` (no further than the context), so that no step on the way
  // there does; as much of it as max_blocks and the machine allow. What a stream does not use stays for others until
  // the cache ends.
  void set_aside(std::uint32_t stream, std::uint32_t positions);
  // Positions [0, positions) are stored; blocks beyond them are freed. `positions` were reserved or stored.
  void commit(std::uint32_t stream, std::uint32_t positions);
  // What is stored from here on was computed in this step: a number that never falls.
  void set_step(std::uint64_t step) { step_ = step; }
  // Cuts the stream at its first position that was computed in `step` or later, whichever stream computed it; what it
  // holds now. Blocks are freed as commit() does.
  std::uint32_t forget_since(std::uint32_t stream, std::uint64_t step);
  // Forgets what was written since the last commit().
  void roll_back(std::uint32_t stream) { commit(stream, length(stream)); }

  // Where a reserved position lies; its slot in the block is position % kKvBlockPositions.
  HeadBlock block(std::uint32_t stream, std::uint32_t position, std::uint32_t layer, std::uint32_t kv_head) const {
    return head_of(streams_[stream].blocks[position / kernels::kKvBlockPositions]->data(), layer, kv_head);
  }
  // The number in its pool of the stream's i-th block, which was reserved.
  std::uint32_t block_number(std::uint32_t stream, std::size_t i) const { return streams_[stream].blocks[i]->number; }
  // Blocks that hold positions [0, positions).
  static std::size_t blocks_for(std::uint64_t positions) {
    return static_cast<std::size_t>((positions + kernels::kKvBlockPositions - 1) / kernels::kKvBlockPositions);
  }
  // k[i], v[i] = the bases of the stream's i-th block, i < n_blocks: the tables that kernels::AttentionArgs wants.
  // n_blocks were reserved.
  void bases(std::uint32_t stream, std::uint32_t layer, std::uint32_t kv_head, std::size_t n_blocks,
             const std::byte** k, const std::byte** v) const;
  // All of the stream's i-th block, i < blocks_for(length): to save it. Positions beyond the length are undefined.
  std::span<const std::byte> stored(std::uint32_t stream, std::size_t i) const {
    return {streams_[stream].blocks[i]->data(), shape_.block_bytes()};
  }
  // The same, to fill a reserved block with what was saved; nothing of it is stored yet, so no other stream holds it.
  std::span<std::byte> room(std::uint32_t stream, std::size_t i) {
    return {streams_[stream].blocks[i]->data(), shape_.block_bytes()};
  }

 private:
  // Lies before the bytes it is about, or alone where those lie in a pool.
  struct alignas(64) Block {
    std::uint32_t holders = 0;                                    // streams
    std::uint32_t awake = 0;                                      // of them, not resting
    std::uint32_t number = 0;                                     // in its pool
    std::array<std::uint64_t, kernels::kKvBlockPositions> steps;  // in which each stored position was computed
    std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
    const std::byte* data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  };
  static constexpr std::align_val_t kBlockAlignment{64};
  struct Stream {
    bool open = false;
    bool resting = false;
    std::uint32_t length = 0;
    std::vector<Block*> blocks;  // room for kPositionsSetAside is set aside at open()
  };

  HeadBlock head_of(std::byte* block, std::uint32_t layer, std::uint32_t kv_head) const {
    std::byte* k = block + (static_cast<std::size_t>(layer) * shape_.n_kv_heads + kv_head) * head_bytes_;
    return {k, k + key_bytes_};
  }
  Block* block_from_machine();
  Block* block_from_pool();
  void free_block(Block* block);
  Status copy_block(Block& to, const Block& from);
  Result<Block*> take_block();
  void hold(Stream& stream, Block* block);
  void let_go(const Stream& stream, Block* block);
  void wake(Block& block, bool awake);
  Status own_last_block(Stream& stream);
  void keep_blocks(Stream& stream, std::size_t n_blocks);

  CacheShape shape_;
  std::uint32_t context_;
  std::size_t key_bytes_;   // of K of one head of one block
  std::size_t head_bytes_;  // of K and V
  std::uint64_t max_blocks_;
  BlockPool* pool_;
  std::uint64_t n_blocks_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t n_awake_ = 0;  // blocks that a stream holds which is not resting
  std::vector<Block*> spare_;  // set aside: in nobody's use
  std::vector<Stream> streams_;
};

}  // namespace terrace::kv
