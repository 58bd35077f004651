// What the supervisor of a run asks of nodes while steps go on: one that is back has its share again, and one that
// lives takes experts of another's. Both off the step's CPU, by calls that give a silent node up soon.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "common/base/result.h"
#include "common/security/credentials.h"
#include "common/threads/cpus.h"
#include "common/transport/connection.h"
#include "coordinator/legs/node_control.h"
#include "coordinator/legs/node_session.h"
#include "coordinator/legs/supervisor.h"

namespace terrace::app {

// Borrows from the engine, for one call. Any thread of the supervisor's.
struct RejoiningNodes {
  const std::shared_ptr<security::Credentials>& credentials;  // of the links to nodes; null: none
  transport::Transport& transport;
  const legs::SessionModel& model;
  const legs::NodeSessionOptions& options;  // of the first sessions
  const CpuChoice& cpus;
  const std::chrono::milliseconds load_timeout;  // ModelOptions::load_timeout

  // A session with the node of this leg, which has its share. link_rate: NodeSessionOptions::link_rate, and then what
  // its link was measured to take meanwhile, also where the share did not arrive. Where it fails, `wrong` says whether
  // the node was found to compute wrong.
  Result<std::shared_ptr<legs::NodeSession>> open(std::size_t leg, const legs::OwnerTable& owners,
                                                  std::uint64_t& link_rate, std::stop_token stop, bool& wrong) const;
  // SupervisorHooks::take_further.
  Status take_further(const legs::FurtherShare& share, std::stop_token stop, std::uint64_t& bytes_sent,
                      bool& wrong) const;

 private:
  Result<std::unique_ptr<legs::NodeControl>> control(const std::string& node) const;
};

}  // namespace terrace::app
