// Brings experts of the mapped model file into memory before a step asks for them: those of a lost node, which are this
// machine's from then on, and those of a suspect one, which the backstop computes meanwhile. A step that needs one
// earlier reads it by itself, as ever; bits do not depend on it.
//
// Nothing is allocated: these are pages of the file, which the system takes back when it needs them. So it reads only
// what the memory plan has room for; more would throw out what other steps need. Where the cache of keys and values is
// taken as needed the room is that of both: a cache that grows later takes pages back, of these experts or of others.
//
// Threads  want() by one thread at a time, which it does not keep waiting; one of its own reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::legs {

class SlabPrefetch {
 public:
  // lookup: of slabs in a file's mapping, which outlives this; n_experts: of a layer; room: bytes that may be brought
  // into memory. Errors as start_thread().
  static Result<std::unique_ptr<SlabPrefetch>> start(SlabLookup lookup,
                                                     const std::vector<kernels::ExpertKernels>& kernels,
                                                     std::uint32_t n_experts, std::uint64_t room);
  ~SlabPrefetch();
  SlabPrefetch(const SlabPrefetch&) = delete;
  SlabPrefetch& operator=(const SlabPrefetch&) = delete;

  // Reads what the host (leg 0) owns in `if_lost` and not in `planned`, in place of what was asked for before: what it
  // owns in `owners` first, which steps need already, then leg by leg what others own there, as far as there is room;
  // those whose slabs were asked for before come before others. Nothing where what it owns in `owners` is more than the
  // room. What is asked for again is not read again.
  void want(const OwnerTable& planned, const OwnerTable& owners, const OwnerTable& if_lost);

  // Any thread. It was brought into memory and is still wanted: the system may have taken pages back since.
  bool in_memory(std::uint32_t layer, std::uint16_t expert) const {
    return in_memory_[index_of(layer, expert)].load(std::memory_order_acquire);
  }
  // Any thread: bytes brought into memory since this was made; of them, those of slabs that were then wanted no more.
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_dropped() const { return bytes_dropped_.load(std::memory_order_relaxed); }

 private:
  // A slab's pieces follow each other.
  struct Piece {
    std::span<const std::byte> bytes;
    std::size_t slab = 0;
    bool first = false, last = false;  // of it
  };

  SlabPrefetch(SlabLookup lookup, const std::vector<kernels::ExpertKernels>& kernels, std::uint32_t n_experts,
               std::uint64_t room);
  std::size_t index_of(std::uint32_t layer, std::uint16_t expert) const {
    return std::size_t{layer} * n_experts_ + expert;
  }
  std::vector<std::size_t> wanted(const OwnerTable& planned, const OwnerTable& owners, const OwnerTable& if_lost) const;
  std::uint64_t bytes_of(const std::vector<std::size_t>& slabs) const;
  void append_slab(std::vector<Piece>& pieces, std::size_t slab) const;
  void drop_all_but(const std::vector<bool>& wanted);
  void read_thread();

  const SlabLookup lookup_;
  const std::vector<kernels::ExpertShape> shapes_;  // [n_layers]
  const std::uint32_t n_experts_;
  const std::uint64_t room_;
  std::vector<std::atomic<bool>> in_memory_;  // [n_layers, n_experts]
  std::atomic<std::uint64_t> bytes_read_ = 0, bytes_dropped_ = 0;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<bool> is_wanted_;  // as in_memory_
  std::vector<Piece> pieces_;    // in the order in which they are read
  std::uint64_t order_ = 0;      // rises with each want() of something else
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace terrace::legs
