// Computes pairs of experts that another leg owns, when that leg cannot: from the coordinator's own file, which has the
// bytes of every expert of the model (docs/architecture.md, failure). Slabs that are not in memory (slab_prefetch.h)
// come through a ring of memory that is set aside at load; a thread reads ahead while the caller computes. The bits are
// those of any other leg.
//
//   backstop.begin(work);                                  // reading begins
//   while (*(progress = backstop.advance(sums, failed, hook)) != Backstop::Progress::kDone) { ... }
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/base/parallel.h"
#include "common/base/result.h"
#include "common/transport/event_fd.h"
#include "coordinator/legs/slab_reader.h"
#include "kernels/executor/executor.h"

namespace terrace::legs {

struct BackstopParts {
  std::unique_ptr<SlabReader> reader;
  std::vector<kernels::ExpertKernels> kernels;  // [n_layers]
  std::uint32_t n_experts = 0;                  // of a layer
  std::uint32_t top_k = 0;
  Parallel& parallel;  // both borrowed
  const kernels::Ops& ops;
  // Of slabs that lie in memory already: they are computed where they are, and the ring is left to others. Empty: none.
  std::function<std::optional<kernels::SlabView>(std::uint32_t layer, std::uint16_t expert)> in_memory = {};
  // false: slabs are read where they are asked for, on the caller's thread: a simulation is then the same each time.
  bool read_ahead = true;
};

// Slabs that the ring holds: max(top_k, 4).
std::uint32_t backstop_slots(std::uint32_t top_k);
// Memory that a backstop takes at load, beside its executor's scratch.
std::uint64_t backstop_bytes(const manifest::ModelExperts& experts);

// One owner thread (the step's), but for what is marked.
class Backstop {
 public:
  // Everything is borrowed from begin() until kDone or end().
  struct Work {
    std::uint32_t layer = 0;
    kernels::RowsView gate_rows;  // [n_rows, d_model] in the class of gate
    kernels::RowsView up_rows;
    std::size_t n_rows = 0;
    std::span<const kernels::Pair> pairs;  // sorted by expert, then row; not empty
  };
  enum class Progress : std::uint8_t {
    kWaiting,   // for the disk: nothing was computed; wait_fd() becomes readable
    kComputed,  // one expert's pairs
    kDone,      // all pairs; the work is over
  };

  // Takes the ring's memory, reads a few slabs to learn the rate. kOutOfMemory; kIo and kCorrupt of the file.
  static Result<std::unique_ptr<Backstop>> open(BackstopParts parts);
  ~Backstop();
  Backstop(const Backstop&) = delete;
  Backstop& operator=(const Backstop&) = delete;

  // One work at a time.
  void begin(const Work& work);
  bool busy() const { return work_.has_value(); }
  // Computes the pairs of the next expert, if its slab is there, and adds them into sums (failed: as Executor::run()).
  // An error is that of reading, names file, tensor and offset, and ends the work: sums is then not to be used.
  Result<Progress> advance(kernels::SumsView sums, std::span<std::uint8_t> failed,
                           kernels::Executor::BetweenSlices between_slices);
  // Gives up the work, if there is one. What is still being read is dropped when it comes.
  void end();
  // begin() and advance() to the end, waiting for the disk.
  Status run(const Work& work, kernels::SumsView sums, std::span<std::uint8_t> failed);
  // The same without weights and sums, as Executor::run_slots(): out [n_pairs, d_model]. For audits.
  Status run_slots(const Work& work, std::span<float> out, std::span<std::uint8_t> failed);

  // Readable when advance() may have more to do than when it gave kWaiting.
  int wait_fd() const { return slab_came_.fd(); }

  // Any thread: "direct I/O" or why not; bytes a second that the file gives, measured at open past the page cache, and
  // by each read since, from wherever; bytes read since then; memory taken.
  const std::string& describe() const { return describe_; }
  double bytes_per_second() const { return bytes_per_second_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  std::uint64_t memory_bytes() const { return ring_.size(); }

 private:
  enum class SlotState : std::uint8_t { kFree, kQueued, kReading, kDropped, kReady, kFailed };
  struct Slot {
    std::span<std::byte> memory;
    SlotState state = SlotState::kFree;
    std::uint32_t layer = 0;
    std::uint16_t expert = 0;
    std::uint64_t order = 0;  // queued slots are read in rising order
    kernels::SlabView view;
    std::optional<Error> error;
  };
  // The pairs of one expert of the work.
  struct Group {
    std::size_t first = 0, count = 0;
    std::optional<kernels::SlabView> there{};  // it lies in memory
    std::size_t slot = 0;                      // else, once it is queued
  };

  Backstop(BackstopParts parts, AlignedBuffer ring, transport::EventFd slab_came);
  Status measure();
  Result<Progress> advance_with(FunctionRef<Status(const Group& group, const kernels::SlabView& slab)> compute);
  Status run_with(const Work& work, FunctionRef<Status(const Group& group, const kernels::SlabView& slab)> compute);
  void queue_reads();
  Result<Progress> after(const Status& computed);
  void read(Slot& slot);
  void read_thread();
  void note_rate(std::uint64_t bytes, double seconds);
  kernels::BatchView view_of(const Group& group) const;

  BackstopParts parts_;
  std::string describe_;
  kernels::Executor executor_;
  AlignedBuffer ring_;

  std::optional<Work> work_;
  std::vector<Group> groups_;    // of the work
  std::size_t next_queued_ = 0;  // group
  std::size_t next_computed_ = 0;

  std::atomic<double> bytes_per_second_ = 0;
  std::atomic<std::uint64_t> bytes_read_ = 0;

  std::mutex mutex_;  // guards all below; a slot's memory is the reader's while kReading and kDropped
  std::condition_variable queued_;
  std::vector<Slot> slots_;
  std::uint64_t next_order_ = 1;
  bool stopping_ = false;
  transport::EventFd slab_came_;
  std::thread thread_;
};

}  // namespace terrace::legs
