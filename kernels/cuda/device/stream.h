// Work on a card in order: streams, events, captured graphs. No CUDA header is seen by who includes this.
//
// Ownership  All are made by a Card (card.h) or from a Stream, move only, and must not outlive the Card.
// Threads    A Stream has one owner thread at a time. Calls queue work and return; only synchronize() waits.
// Errors     kInternal with the card's name and the driver's words. A card that failed once fails every later call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/function_ref.h"
#include "common/base/result.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace terrace::kernels::cuda {

// What a machine's driver says of one card.
struct CardInfo {
  int index = 0;          // as the driver counts
  std::string name;       // "NVIDIA H200"
  int compute_major = 0;  // 9.0: sm_90
  int compute_minor = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // when it was asked
  std::uint32_t multiprocessors = 0;
  std::uint32_t shared_bytes_per_block = 0;  // the most that a block may ask for
  bool integrated = false;                   // its memory is the host's
  bool ends_long_kernels = false;            // its driver does, after some seconds: it drives a display
};

class Event {
 public:
  // Milliseconds from `earlier` to this one; both were recorded and have passed.
  Result<float> milliseconds_since(const Event& earlier) const;
  Status synchronize() const;
  CUevent_st* native() const { return handle_.get(); }

 private:
  friend class Card;
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };
  Event(const CardInfo& card, CUevent_st* event) : card_(&card), handle_(event) {}
  const CardInfo* card_;
  std::unique_ptr<CUevent_st, Destroy> handle_;
};

class Stream {
 public:
  // Host memory that is pinned (PinnedBuffer) is copied while the caller goes on, other memory before it does.
  Status copy_to_card(void* card, const void* host, std::size_t bytes) const;
  Status copy_to_host(void* host, const void* card, std::size_t bytes) const;
  Status copy_on_card(void* to, const void* from, std::size_t bytes) const;
  Status fill(void* card, std::uint8_t byte, std::size_t bytes) const;
  // Waits until everything queued is done; also reports what went wrong in a kernel.
  Status synchronize() const;
  // Whether everything queued is done; does not wait. Errors as synchronize().
  Result<bool> is_done() const;
  Status record(const Event& event) const;
  Status wait(const Event& event) const;  // what is queued later begins after `event`

  const CardInfo& card() const { return *card_; }
  CUstream_st* native() const { return handle_.get(); }

 private:
  friend class Card;
  struct Destroy {
    void operator()(CUstream_st* stream) const;
  };
  Stream(const CardInfo& card, CUstream_st* stream) : card_(&card), handle_(stream) {}
  const CardInfo* card_;
  std::unique_ptr<CUstream_st, Destroy> handle_;
};

// Work queued once and replayed: one launch for a whole step.
class Graph {
 public:
  // What `queue` puts on the stream is captured instead of run. The memory that it names must stay. kOutOfMemory: the
  // card has none left for the graph itself, which is beside the budget.
  static Result<Graph> capture(const Stream& stream, FunctionRef<Status()> queue);
  Status launch(const Stream& stream) const;

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const;
  };
  explicit Graph(CUgraphExec_st* graph) : handle_(graph) {}
  std::unique_ptr<CUgraphExec_st, Destroy> handle_;
};

}  // namespace terrace::kernels::cuda
