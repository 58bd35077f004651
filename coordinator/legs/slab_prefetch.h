// Brings experts of the mapped model file into memory before a step asks for them: those of a lost node, which are this
// machine's from then on. A step that needs one earlier reads it by itself, as ever; bits do not depend on it.
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
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "coordinator/legs/host_leg.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::legs {

class SlabPrefetch {
 public:
  // lookup: of slabs in a file's mapping, which outlives this; room: bytes that may be brought into memory.
  SlabPrefetch(SlabLookup lookup, const std::vector<kernels::ExpertKernels>& kernels, std::uint64_t room);
  ~SlabPrefetch();
  SlabPrefetch(const SlabPrefetch&) = delete;
  SlabPrefetch& operator=(const SlabPrefetch&) = delete;

  // Reads what the host (leg 0) owns in `now` and not in `planned`, in place of what was asked for before. Nothing
  // where that is more than the room.
  void want(const OwnerTable& planned, const OwnerTable& now);

  // Any thread: bytes brought into memory since this was made.
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  using Piece = std::span<const std::byte>;

  void append(std::vector<Piece>& pieces, const std::byte* part, std::uint64_t bytes) const;
  void read_thread();

  const SlabLookup lookup_;
  const std::vector<kernels::ExpertShape> shapes_;  // [n_layers]
  const std::uint64_t room_;
  std::atomic<std::uint64_t> bytes_read_ = 0;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Piece> pieces_;
  std::uint64_t order_ = 0;  // rises with each want()
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace terrace::legs
