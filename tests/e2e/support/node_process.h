// The real terrace-node on loopback, on ports that the system chooses.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/support/process.h"

namespace terrace::test {

class NodeProcess {
 public:
  // Starts it and waits until it listens; throws (the test fails) when it does not. It runs in `network` (as for
  // spawn()), and listens at loopback unless the flags say where.
  explicit NodeProcess(const std::vector<std::string>& flags = {}, int network = -1);
  ~NodeProcess() = default;

  const std::string& address() const { return address_; }  // HOST:PORT
  std::uint16_t data_port() const { return data_port_; }   // 0: its log does not say
  Process& process() { return *process_; }
  void kill(int signal) { process_->kill(signal); }
  // Ends it by SIGKILL and starts it anew, with the same flags and at the same address.
  void restart();
  // SIGTERM: it drains and exits 0, or the test fails.
  void stop();
  // `terrace status --json`, or an empty object where it does not answer.
  nlohmann::json status() const;
  // Bytes reserved by all its sessions.
  std::uint64_t reserved() const { return status().at("memory").at("reserved"); }

 private:
  void start(const std::string& listen);

  const std::vector<std::string> flags_;
  const int network_;
  std::unique_ptr<Process> process_;
  std::string address_;
  std::uint16_t data_port_ = 0;
};

}  // namespace terrace::test
