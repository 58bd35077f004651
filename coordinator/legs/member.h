// A session with a node as the supervisor (supervisor.h) handles it: NodeSession, or a test's.
#pragma once

#include <cstdint>
#include <memory>

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
  // The node is out: its lease is not renewed, calls in progress end, and what is not the leg's own is closed. Returns
  // at once; any thread, also during the calls above.
  virtual void abandon() = 0;
};

struct OpenedMember {
  std::shared_ptr<Member> member;
  std::shared_ptr<Leg> leg;  // keeps the member alive
};

}  // namespace terrace::legs
