#include "tests/e2e/support/node_process.h"

#include <signal.h>

#include <stdexcept>

#include "tests/test_data.h"

namespace terrace::test {
namespace {

// What stands between `before` and the end of its line; empty: it is not there yet.
std::string rest_of_line(const std::string& text, const std::string& before) {
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const std::size_t end = text.find('\n', at);
  return end == std::string::npos ? "" : text.substr(at + before.size(), end - at - before.size());
}

}  // namespace

NodeProcess::NodeProcess(const std::vector<std::string>& flags, int network) : flags_(flags), network_(network) {
  start("127.0.0.1:0");
}

void NodeProcess::start(const std::string& listen) {
  std::vector<std::string> command = {(binary_dir() / "terrace-node").string(), "--listen", listen, "--data-port", "0"};
  command.insert(command.end(), flags_.begin(), flags_.end());
  process_ = std::make_unique<Process>(command, "", network_);
  address_.clear();
  const bool said = eventually([this] {
    address_ = rest_of_line(process_->err(), "listening on ");
    return !address_.empty() || !process_->running();
  });
  if (!said || address_.empty()) throw std::runtime_error("terrace-node does not listen:\n" + process_->err());
  const std::string port = rest_of_line(process_->err(), "data port ");  // not said below --log-level info
  if (!port.empty()) data_port_ = static_cast<std::uint16_t>(std::stoul(port));
}

void NodeProcess::restart() {
  const std::string address = address_;
  process_.reset();
  start(address);
}

void NodeProcess::stop() {
  process_->kill(SIGTERM);
  const Outcome outcome = process_->wait();
  EXPECT_TRUE(outcome.ended) << address_ << " does not stop";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

nlohmann::json NodeProcess::status() const {
  const Outcome outcome = run_program(terrace({"status", "--node", address_, "--json"}));
  if (outcome.exit_code != 0) return nlohmann::json::object();
  return nlohmann::json::parse(outcome.out);
}

}  // namespace terrace::test
