// Brings missing slabs into memory, from the node's own file or from the weights lane, and verifies every one.
//
// Threads  One worker reads, copies and hashes what this node's file gives, slab by slab, so that sessions take turns;
//          what comes over lanes is SlabReceiver's. Callers wait for neither.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "tier_node/session/own_model.h"
#include "tier_node/session/session.h"
#include "tier_node/session/slab_receiver.h"
#include "tier_node/session/worker.h"

namespace terrace::node {

class SlabLoader {
 public:
  // own: null without --model, borrowed. receivers: threads of SlabReceiver, and how they run. Errors as
  // start_thread().
  static Result<std::unique_ptr<SlabLoader>> make(const OwnModel* own, const Logger& log, unsigned receivers = 1,
                                                  const Background& background = {});

  const OwnModel* own_model() const { return own_; }
  bool has_model(const Session& session) const { return own_ != nullptr && own_->hash() == session.model().hash(); }

  // Once for each assignment that is not complete; returns at once. A probe's slabs are made here, never asked for: one
  // whose id is of other bytes ends the assignment. The worker asks for what the file does not give,
  // reads the rest, and makes the epoch live when all is there. A slab that the file gives wrongly is logged with
  // file, layer and expert, and asked for from the coordinator.
  void start(const SessionRef& session, const AssignmentRef& assignment);

  // From the weights lane: SlabReceiver::receive().
  void receive(ReceivedPiece piece) { receiver_.receive(std::move(piece)); }

 private:
  SlabLoader(const OwnModel* own, const Logger& log, unsigned receivers);
  void read_next(const SessionRef& session, const AssignmentRef& assignment, std::size_t slot);
  Status read_own(const SessionRef& session, Assignment& assignment, Assignment::Slot& slot);
  // The same of a probe's model (docs/wire.md 13). kCorrupt: the manifest's id is of other bytes.
  Status make_own(const SessionRef& session, Assignment& assignment, Assignment::Slot& slot);
  void finish_if_complete(const SessionRef& session, const AssignmentRef& assignment);

  const OwnModel* const own_;
  const Logger log_;
  std::vector<std::byte> buffer_;  // one slab as the file has it; the worker's
  SlabReceiver receiver_;
  Worker worker_;  // last: ends before what its jobs use
};

}  // namespace terrace::node
