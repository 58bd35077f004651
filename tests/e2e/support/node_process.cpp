#include "tests/e2e/support/node_process.h"

#include <signal.h>

#include <algorithm>
#include <stdexcept>

#include "tests/test_data.h"

namespace terrace::test {
namespace {

std::vector<std::string> node_command(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {(binary_dir() / "terrace-node").string()};
  if (std::ranges::find(flags, "--listen") == flags.end()) command.insert(command.end(), {"--listen", "127.0.0.1:0"});
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// What stands between `before` and the end of its line; empty: it is not there yet.
std::string rest_of_line(const std::string& text, const std::string& before) {
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const std::size_t end = text.find('\n', at);
  return end == std::string::npos ? "" : text.substr(at + before.size(), end - at - before.size());
}

}  // namespace

NodeProcess::NodeProcess(const std::vector<std::string>& flags, int network)
    : process_(node_command(flags), "", network) {
  const bool said = eventually([this] {
    address_ = rest_of_line(process_.err(), "listening on ");
    return !address_.empty() || !process_.running();
  });
  if (!said || address_.empty()) throw std::runtime_error("terrace-node does not listen:\n" + process_.err());
  const std::string port = rest_of_line(process_.err(), "data port ");  // not said below --log-level info
  if (!port.empty()) data_port_ = static_cast<std::uint16_t>(std::stoul(port));
}

void NodeProcess::stop() {
  process_.kill(SIGTERM);
  const Outcome outcome = process_.wait();
  EXPECT_TRUE(outcome.ended) << address_ << " does not stop";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

nlohmann::json NodeProcess::status() const {
  const Outcome outcome = run_program(terrace({"status", "--node", address_, "--json"}));
  if (outcome.exit_code != 0) return nlohmann::json::object();
  return nlohmann::json::parse(outcome.out);
}

}  // namespace terrace::test
