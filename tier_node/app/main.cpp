// terrace-node: the tier node daemon.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/environment.h"
#include "common/manifest/cache.h"
#include "tier_node/app/node.h"
#include "tier_node/app/options.h"

namespace {

constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2;

int fail(const terrace::Error& error) {
  fmt::print(stderr, "terrace-node: {}\n", error.text());
  return error.code() == terrace::ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

std::filesystem::path cache_dir(const terrace::Environment& environment) {
  const auto xdg = environment.get("XDG_CACHE_HOME");
  const auto home = environment.get("HOME");
  return terrace::manifest::default_cache_dir(xdg ? xdg->c_str() : nullptr, home ? home->c_str() : nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  // A closed stdout or peer is an error of that write, not the end of the process.
  signal(SIGPIPE, SIG_IGN);
  const terrace::Environment environment = terrace::Environment::of_process();
  terrace::node::NodeOptions options;
  terrace::OptionTable table = terrace::node::make_option_table(&options);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto outcome = table.parse(arguments, environment);
  if (!outcome.ok()) return fail(outcome.error());
  if (outcome->print) {
    fmt::print("{}", *outcome->print);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? kExitOk : kExitFailure;
  }
  options.log.colour = terrace::colour_wanted(environment, STDERR_FILENO);
  const terrace::Logger log = terrace::Logger::to_stderr(options.log);
  for (const std::string& note : outcome->notes) log.info("{}", note);
  const terrace::Status served = terrace::node::run_node(options, cache_dir(environment), log);
  return served.ok() ? kExitOk : fail(served.error());
}
