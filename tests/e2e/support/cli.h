// `terrace` as a user calls it: what it prints, and how it ends.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/e2e/support/documented_keys.h"
#include "tests/e2e/support/process.h"
#include "tests/test_data.h"

namespace terrace::test {

using Arguments = std::vector<std::string>;
using nlohmann::json;

// A program of ours by its name.
inline std::string program(const std::string& name) { return (binary_dir() / name).string(); }

inline json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  return json::parse(in);
}

// Runs `terrace` with these arguments. The test fails unless it ends with `exit_code`.
inline Outcome run_terrace(const Arguments& arguments, int exit_code = 0, const std::string& input = "") {
  Outcome run = run_program(terrace(arguments), input);
  EXPECT_TRUE(run.ended);
  EXPECT_EQ(run.exit_code, exit_code) << "signal " << run.signal << "\n" << run.err;
  return run;
}

// The one JSON value on stdout; throws (the test fails) when there is none.
inline json run_terrace_json(const Arguments& arguments, const std::string& input = "") {
  return json::parse(run_terrace(arguments, 0, input).out);
}

// Runs a shell line in which "$@" is the program with its arguments: for redirections.
inline Outcome run_shell(const std::string& line, const Arguments& program_and_arguments) {
  Arguments words = {"/bin/sh", "-c", line, "sh"};
  words.insert(words.end(), program_and_arguments.begin(), program_and_arguments.end());
  return run_program(words);
}

// Runs a program in `dir` with more environment variables ("TERRACE_SEED=3").
inline Outcome run_in(const std::filesystem::path& dir, const Arguments& variables,
                      const Arguments& program_and_arguments) {
  Arguments words = {"/usr/bin/env", "-C", dir.string()};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), program_and_arguments.begin(), program_and_arguments.end());
  return run_program(words);
}

// The object has these keys, in this order and no others; types as json::type_name() says, "number" for any.
inline void expect_shape(const nlohmann::ordered_json& object,
                         const std::vector<std::pair<std::string, std::string>>& keys) {
  ASSERT_TRUE(object.is_object()) << object.dump();
  std::vector<std::string> found, wanted;
  for (const auto& [key, value] : object.items()) found.push_back(key);
  for (const auto& [key, type] : keys) {
    wanted.push_back(key);
    if (const auto value = object.find(key); value != object.end()) {
      EXPECT_EQ(value->type_name(), type) << key;
    }
  }
  EXPECT_EQ(found, wanted);
}

// An entry of the array "legs" of `generate` and `bench`.
inline void expect_leg_shape(const nlohmann::ordered_json& leg) {
  expect_shape(leg, {{"name", "string"},
                     {"kind", "string"},
                     {"state", "string"},
                     {"experts", "number"},
                     {"batches", "number"},
                     {"rows", "number"},
                     {"pairs", "number"},
                     {"hedged_pairs", "number"},
                     {"bytes_sent", "number"},
                     {"bytes_received", "number"},
                     {"weight_bytes_sent", "number"},
                     {"wait_us", "number"},
                     {"compute_us", "number"},
                     {"round_trip_us", "number"},
                     {"hedges", "number"},
                     {"false_hedges", "number"},
                     {"late", "number"},
                     {"skipped", "number"},
                     {"refused", "number"},
                     {"losses", "number"},
                     {"wrongs", "number"},
                     {"rejoins", "number"},
                     {"audited_pairs", "number"},
                     {"backstop_bytes", "number"},
                     {"backstop_us", "number"},
                     {"reason", "string"}});
  expect_documented(leg, {"An entry of `legs`"});
}

// The option names of a program or of its command: "--name" at the beginning of a row of its --help, but for those that
// every one has.
inline std::set<std::string> names_in_help(const std::string& program, const std::string& command = "") {
  Arguments words = {program};
  if (!command.empty()) words.push_back(command);
  words.emplace_back("--help");
  const std::string help = run_program(words).out;
  std::set<std::string> names;
  for (std::size_t at = 0; (at = help.find("--", at)) != std::string::npos; ++at) {
    const std::size_t line = help.rfind('\n', at) + 1;
    if (at - line != 6) continue;  // "  -p, --prompt" and "      --stop"
    names.insert(help.substr(at + 2, help.find_first_of(" \n", at) - at - 2));
  }
  for (const char* every : {"config", "print-config", "help", "version"}) EXPECT_EQ(names.erase(every), 1u) << every;
  return names;
}

}  // namespace terrace::test
