// terrace-node: the tier node daemon.
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/console.h"
#include "common/base/environment.h"
#include "common/base/program_options.h"
#include "common/base/service_manager.h"
#include "common/gguf/mapping_fault.h"
#include "common/manifest/cache.h"
#include "common/transport/link/link.h"
#include "tier_node/app/node.h"
#include "tier_node/app/options.h"

namespace {

constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2;

int fail(const terrace::Error& error) {
  terrace::print_err("terrace-node: {}\n", error.text());
  return error.code() == terrace::ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

std::filesystem::path cache_dir(const terrace::Environment& environment) {
  const auto xdg = environment.get("XDG_CACHE_HOME");
  const auto home = environment.get("HOME");
  return terrace::manifest::default_cache_dir(xdg ? xdg->c_str() : nullptr, home ? home->c_str() : nullptr);
}

int run(const std::vector<std::string>& arguments) {
  const terrace::Environment environment = terrace::Environment::of_process();
  terrace::node::NodeOptions options;
  terrace::OptionTable table = terrace::node::make_option_table(&options);
  for (const char* command : terrace::kTerraceCommands)
    table.add_sibling(command, {std::begin(terrace::kTerraceOptions), std::end(terrace::kTerraceOptions)});
  const auto outcome = table.parse(arguments, environment);
  if (!outcome.ok()) return fail(outcome.error());
  if (outcome->print) {
    terrace::print_out("{}", *outcome->print);
    if (terrace::stdout_is_written()) return kExitOk;
    return fail({terrace::ErrorCode::kIo, "the text could not be written to stdout"});
  }
  options.log.colour = terrace::colour_wanted(environment, STDERR_FILENO);
  const terrace::Logger log = terrace::Logger::to_stderr(options.log);
  for (const std::string& note : outcome->notes) log.info("{}", note);
  const terrace::ServiceManager manager(environment);
  const terrace::Status served = terrace::node::run_node(options, cache_dir(environment), manager, log);
  return served.ok() ? kExitOk : fail(served.error());
}

}  // namespace

int main(int argc, char** argv) {
  terrace::transport::return_signals();
  terrace::prepare_standard_streams();
  terrace::gguf::explain_mapping_faults();
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory, or a library's own bug
    return fail({terrace::ErrorCode::kInternal, error.what()});
  }
}
