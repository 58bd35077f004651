// Many requests through one trunk, a step at a time (continuous batching).
//
// Step       One row of each decoding stream, and beside them a bounded number of rows of prompts (chunk_rows); where
// no
//            stream decodes, as many prompt rows as the trunk takes. So a stream waits for at most one chunk between
//            two tokens. Prompts with the fewest rows left go first, but the oldest always gets a quarter of the chunk.
//            A stream's bits depend neither on its company nor on how its prompt was cut (docs/numerics.md 9, P4).
// Queue      First in, first out for each client; clients take turns. Beyond queue_limit waiting requests submit() says
//            kBusy.
// Reuse      A request takes over the longest prefix of its prompt that any sequence holds: a running one, a slot's
//            last one, or one kept in memory. Blocks are shared and copied when written. A prompt that begins as
//            another one that is being computed waits for the common part and computes only its own (n choices of one
//            prompt cost one prompt). The last token of a prompt is always computed, as its logits are needed.
// Sequences  A sequence whose request has ended stays for reuse, on its slot until that takes another request, then
//            without one, until resting_bytes or the trunk's streams run out: the least recently used goes first, and
//            one that is a prefix of a newer sequence goes at once.
// Memory     Where the trunk's cache has a budget, it holds at least one stream of a full context (make() asks for it).
//            When a step finds no block, resting sequences go first; then the youngest running stream gives its blocks
//            back, waits until another stream has ended, and computes its tokens again: its client sees a pause and
//            the same bits. So no stream that runs ends for lack of memory that others took.
// Audits     Where a step says kUncertain (a node was found to compute wrong, and is out), sequences are cut to what is
//            certain, kept ones too, and streams compute the rest again: their tokens are those of a run without the
//            node. A streamed reply that has told a token which is not certain ends with an error.
// Errors     A row that is not finite ends its own stream. A step that fails (a leg's error) ends the streams that had
//            rows in it, is told by status() until a step works again, and the scheduler goes on.
//
// Threads    Any thread may call anything. One own thread takes the steps and owns the trunk, its cache and the legs
//            from make() until the destructor has returned; nothing but steps keeps it busy for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "common/base/result.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/legs/leg_board.h"
#include "coordinator/serve/scheduler/request.h"
#include "coordinator/serve/scheduler/state.h"
#include "coordinator/text/tokenizer.h"
#include "kernels/cpu/ops/ops.h"

namespace terrace::serve {

struct SchedulerOptions {
  std::uint32_t slots = 4;         // requests that run at once; fewer than the trunk's streams allow is refused
  std::uint32_t queue_limit = 64;  // requests that wait beside those that run
  // Prompt rows beside decoding streams. A chunk's experts are nearly all of a layer's from a few dozen rows on, so
  // that more rows cost less each and make others wait longer.
  std::uint32_t chunk_rows = 64;
  // Memory of sequences kept for reuse that no running stream shares. 0: none are kept.
  std::uint64_t resting_bytes = std::uint64_t{1} << 30;
  // The model's manifest hash or another name of its bytes: saved slots are restored into the same model only.
  std::string model_hash;
  // Called on the scheduler's thread when a node was found to compute wrong, which `why` tells: n_ended replies that
  // ended before are not certain. May be empty.
  std::function<void(const Error& why, std::size_t n_ended)> on_roll_back;
  // Called on the scheduler's thread once for a step that failed, before its n_ended requests hear of it: `why` names
  // the leg. May be empty.
  std::function<void(const Error& why, std::size_t n_ended)> on_step_failed;
  // Called on the scheduler's thread before listeners are told what a step gave, and after. May be empty.
  std::function<void()> before_telling, after_telling;
  // Called first on the scheduler's thread; what it gives lives until the thread ends (a ThreadAffinity, say).
  std::function<std::shared_ptr<void>()> on_thread;
};

// Borrowed, and outlive the scheduler.
struct SchedulerParts {
  arch::Trunk& trunk;
  const text::Tokenizer& tokenizer;
  const kernels::Ops& ops;
  Parallel& parallel;                     // the trunk's: tokens of several streams are chosen at once
  const legs::LegBoard* board = nullptr;  // null: nothing is told of legs
};

class Scheduler {
 public:
  // Starts the thread. kInvalidArgument: more slots than the trunk has streams, or than rows of a step less one; a
  // cache budget below one stream's context; names both numbers.
  static Result<std::unique_ptr<Scheduler>> make(SchedulerParts parts, SchedulerOptions options);
  // As stop(0), then joins.
  virtual ~Scheduler() = default;

  // Checks the request and puts it into the queue; the listener then hears of it, on error it never does.
  //   kBusy             the queue is full: nothing was done, try again later
  //   kRefused          stop() was called
  //   kContextFull      the prompt and one token do not fit: the text has "n_prompt_tokens" and "n_ctx" as numbers, see
  //                     fits()
  //   kInvalidArgument  an empty prompt, ids that are no tokens, sampling options, stops, bias or slot out of range
  virtual Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) = 0;
  // The request ends with kCancelled, at the latest after the step that runs now; its slot is then free. False: no such
  // request waits or runs.
  virtual bool cancel(RequestId request) = 0;

  virtual SchedulerStatus status() const = 0;
  // Positions of a slot: prompt and answer.
  virtual std::uint32_t context() const = 0;
  // Whether a prompt of so many tokens leaves room for one more: what submit() asks.
  bool fits(std::size_t prompt_tokens) const { return prompt_tokens < context(); }

  // Slots. These wait for the step that runs, and for the disk, on the caller's thread.

  struct SlotFileResult {
    std::uint32_t tokens = 0;
    std::uint64_t bytes = 0;
    double ms = 0;
  };
  // Writes the sequence of an idle or running slot, as it is now, to a file (slot_file.h), which is replaced in one
  // piece. kNotFound: the slot holds nothing. kInvalidArgument: no such slot. kIo. kUncertain: meanwhile a node was
  // found to compute wrong that had a part in it; there is no file.
  virtual Result<SlotFileResult> save_slot(std::uint32_t slot, const std::filesystem::path& file) = 0;
  // The slot's sequence becomes the file's. kBusy: the slot runs a request. kCorrupt, kUnsupported (another version),
  // kRefused (of another model or cache type), kContextFull, kOutOfMemory, kIo, kNotFound: the slot keeps what it had.
  virtual Result<SlotFileResult> restore_slot(std::uint32_t slot, const std::filesystem::path& file) = 0;
  // Forgets the slot's sequence; how many tokens it had. kBusy: the slot runs a request.
  virtual Result<std::uint32_t> erase_slot(std::uint32_t slot) = 0;

  // No further request is taken. Those that wait end with kStopping at once; those that run go on until they end or
  // `deadline` is over, and then end with kStopping. Returns when none is left: after the deadline and one step at
  // most.
  virtual void stop(std::chrono::milliseconds deadline) = 0;

 protected:
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
};

}  // namespace terrace::serve
