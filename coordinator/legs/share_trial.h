// A canary for a further share. Whoever moves a share has no use of the node's leg, which is the step's; so the share
// is tried by a session of its own beside it, for batches of a canary's size, which ends with the answer. The node has
// the slabs in memory already and gives the session those; nothing is sent.
//
// Threads  One at a time; any.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/result.h"
#include "common/manifest/manifest.h"
#include "common/transport/connection.h"
#include "coordinator/legs/node_control.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/legs/owner_table.h"

namespace terrace::legs {

// The experts that a trial asks for, the first of each combination of types and shapes that `owners` gives to `leg` and
// `before` does not; the host owns the rest.
OwnerTable trial_share(const manifest::Manifest& model, const OwnerTable& before, const OwnerTable& owners,
                       std::size_t leg);

// Bytes of its budget that a trial of any share takes of the node, while it lasts. Errors as NodeControl::estimate().
Result<std::uint64_t> trial_bytes(NodeControl& node, const manifest::Manifest& model);

// kRefused, and `wrong` is set: it computes other bits than this machine. Else as NodeSession::open() and take_share().
// options: of the node's session; their stop ends it early.
Status try_share(std::unique_ptr<NodeControl> node, transport::Transport& transport, const SessionModel& model,
                 NodeSessionOptions options, const OwnerTable& share, std::size_t leg, bool& wrong);

}  // namespace terrace::legs
