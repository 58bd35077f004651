// A session with a node as the supervisor (supervisor.h) handles it: NodeSession, or a test's.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>

#include "common/base/result.h"
#include "coordinator/legs/leg.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::legs {

// One thread at a time but where said.
class Member {
 public:
  virtual ~Member() = default;  // ends the session
  // The node has ended the session, or answered nothing for as long as its lease. Any thread.
  virtual bool lease_lost() const = 0;
  // Has the node know the number of `owners`, of which `leg` has the share that it has already.
  virtual Status acknowledge(const OwnerTable& owners, std::size_t leg) = 0;
  virtual Status forget(std::uint64_t epoch) = 0;
  // A further share, while steps use the leg: room for what `owners` gives to `leg`, and the slabs that the node lacks
  // of it; then the node has the epoch. On an error the share is what it was. `stop` ends it between slabs (kPeerGone).
  // Adds to `bytes_sent`. A thread of its own; the calls above may come meanwhile.
  virtual Status take_further(const OwnerTable& owners, std::size_t leg, std::stop_token stop,
                              std::uint64_t& bytes_sent) = 0;
  // Room on the node for more than what `owners` gives to `leg` is given back. kBusy: not all of it yet.
  virtual Status give_back(const OwnerTable& owners, std::size_t leg) = 0;
  // The node is out: its lease is not renewed, calls in progress end, and what is not the leg's own is closed. Returns
  // at once; any thread, also during the calls above.
  virtual void abandon() = 0;
};

struct OpenedMember {
  std::shared_ptr<Member> member;
  std::shared_ptr<Leg> leg;  // keeps the member alive
};

}  // namespace terrace::legs
