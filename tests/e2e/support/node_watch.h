// A node's state as `terrace status` sees it, asked for often.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "coordinator/legs/grpc_node_control.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {

class NodeWatch {
 public:
  explicit NodeWatch(const std::string& address, std::shared_ptr<security::Credentials> credentials = {})
      : control_(must(legs::make_grpc_node_control(address, {}, std::move(credentials)))) {}

  // Until the node answers and what it says is so; false: not within the test's patience.
  template <class Condition>
  bool until(Condition condition, std::chrono::milliseconds patience = kPatience) {
    return eventually(
        [&] {
          const auto status = control_->status();
          return status.ok() && condition(*status);
        },
        patience);
  }
  // Until the node's only session says so.
  template <class Condition>
  bool until_session(Condition condition) {
    return until([&](const legs::NodeStatus& status) {
      return status.sessions.size() == 1 && condition(status, status.sessions[0]);
    });
  }
  bool until_rows(std::uint64_t rows) {
    return until_session([&](const auto&, const auto& session) { return session.rows >= rows; });
  }
  bool until_sessions(std::size_t n) {
    return until([&](const legs::NodeStatus& status) { return status.sessions.size() == n; });
  }
  bool until_clean(std::chrono::milliseconds patience = kPatience) {
    return until(
        [](const legs::NodeStatus& status) {
          return status.sessions.empty() && status.memory_reserved == 0 && status.memory_used == 0;
        },
        patience);
  }

 private:
  std::unique_ptr<legs::NodeControl> control_;
};

}  // namespace terrace::test
