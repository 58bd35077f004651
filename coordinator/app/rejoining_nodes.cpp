#include "coordinator/app/rejoining_nodes.h"

#include <chrono>
#include <utility>

#include "common/threads/background.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/share_trial.h"

namespace terrace::app {
namespace {

// Of a call to a node that may come back: while one that answers nothing is waited for, no other is tried.
constexpr std::chrono::milliseconds kRejoinCall{5'000};

}  // namespace

Result<std::unique_ptr<legs::NodeControl>> RejoiningNodes::control(const std::string& node) const {
  legs::ControlTimeouts timeouts;
  timeouts.call = kRejoinCall;
  timeouts.progress = load_timeout;
  return legs::make_grpc_node_control(node, timeouts, credentials);
}

Status RejoiningNodes::take_further(const legs::FurtherShare& share, std::stop_token stop, std::uint64_t& bytes_sent,
                                    bool& wrong) const {
  // By a thread that ends with this: what it sends keeps off the step's CPU.
  const ThreadAffinity aside = enter_background({.cpus = cpus_beside_steps(cpus)});
  TERRACE_RETURN_IF_ERROR(share.member->take_further(share.owners, share.leg, stop, bytes_sent));
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<legs::NodeControl> node, control(share.owners.leg_name(share.leg)));
  legs::NodeSessionOptions trial = options;
  trial.stop = std::move(stop);
  return legs::try_share(std::move(node), transport, model, trial,
                         legs::trial_share(model.manifest, share.before, share.owners, share.leg), share.leg, wrong);
}

Result<std::shared_ptr<legs::NodeSession>> RejoiningNodes::open(std::size_t leg, const legs::OwnerTable& owners,
                                                                std::uint64_t& link_rate, std::stop_token stop,
                                                                bool& wrong) const {
  const ThreadAffinity aside = enter_background({.cpus = cpus_beside_steps(cpus)});
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<legs::NodeControl> node, control(owners.leg_name(leg)));
  legs::NodeSessionOptions again = options;
  again.stop = std::move(stop);
  again.link_rate = link_rate;
  again.beside_steps = true;
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<legs::NodeSession> opened,
                           legs::NodeSession::open(std::move(node), transport, model, again));
  const Status taken = opened->take_share(owners, leg, [](const legs::ShareProgress&) {});
  link_rate = opened->link_rate().measured();  // of the link that it is back over
  wrong = opened->wrong();
  if (!taken.ok()) return taken.error();
  return std::shared_ptr<legs::NodeSession>(std::move(opened));
}

}  // namespace terrace::app
