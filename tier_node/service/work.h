// A batch between its arrival and its last reply.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "common/base/result.h"
#include "common/wire/messages.h"
#include "tier_node/service/out_frame.h"
#include "tier_node/session/session.h"

namespace terrace::node {

// Written by the I/O thread before it is queued and after it has come back; between, the compute thread reads it and
// only `cancelled` is shared.
struct Work {
  std::uint64_t peer = 0;  // the connection it came by
  SessionRef session;
  EpochRef epoch;  // pins the slabs
  wire::BatchView batch;
  std::span<const std::byte> frame;  // what `batch` points into
  bool owes_credit = false;          // the frame's; the I/O thread's alone
  std::chrono::steady_clock::time_point arrived;
  std::atomic<bool> cancelled = false;
  Work* next = nullptr;  // in its queue
};

// What the compute thread hands back: one for each range. The last one ends the batch; where the batch failed it has no
// reply.
struct Completion {
  Work* work = nullptr;
  OutFramePtr reply;           // a range's reply
  std::optional<Error> error;  // the batch failed; only in the last one
  bool last = false;
};

// Where completions go. Called by the compute thread.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void post(Completion completion) = 0;
};

}  // namespace terrace::node
