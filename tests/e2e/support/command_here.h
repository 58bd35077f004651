// A command of `terrace` in this process: all of the program but its start, for tests that call it hundreds of times.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/app/command.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {

// arguments[0] is the command's name. What main() would print and return; the peak of memory is not known. A signal
// ends the test itself. For commands that leave nothing behind in the process: no server, no run with nodes.
inline Outcome run_command_here(std::vector<std::string> arguments, const Environment& environment = {}) {
  const auto commands = app::all_commands();
  const auto command = std::ranges::find(commands, arguments.at(0), [](const app::Command& c) { return c.name; });
  if (command == commands.end()) throw std::runtime_error("no command " + arguments[0]);
  arguments.erase(arguments.begin());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const Status status = command->run({std::move(arguments), environment});
  Outcome outcome;
  outcome.err = ::testing::internal::GetCapturedStderr();
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.ended = true;
  outcome.exit_code = status.ok() ? app::kExitOk : app::exit_code(status.error());
  if (!status.ok()) outcome.err += fmt::format("terrace: {}\n", status.error().text());
  return outcome;
}

}  // namespace terrace::test
