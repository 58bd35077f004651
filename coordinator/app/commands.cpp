#include <iterator>
#include <nlohmann/json.hpp>

#include "common/base/console.h"
#include "common/base/program_options.h"
#include "coordinator/app/command.h"

namespace terrace::app {
namespace {

constexpr Command kCommands[] = {
    {"generate", "Continue a prompt.", run_generate, generate_option_names},
    {"chat", "Talk with the model.", run_chat, chat_option_names},
    {"serve", "Answer HTTP requests: llama-server's, OpenAI's and Anthropic's.", run_serve, serve_option_names},
    {"score", "Measure how well the model predicts a text.", run_score, score_option_names},
    {"bench", "Measure tokens a second, and how near they come to what memory allows.", run_bench, bench_option_names},
    {"plan", "Say what memory a run would take, and where, before anything is loaded.", run_plan, plan_option_names},
    {"tokenize", "Turn text into token ids.", run_tokenize, tokenize_option_names},
    {"detokenize", "Turn token ids into text.", run_detokenize, detokenize_option_names},
    {"template", "Show what a chat template makes of a conversation.", run_template, template_option_names},
    {"inspect", "Show what a model file holds and what this build can run of it.", run_inspect, inspect_option_names},
    {"status", "Show a tier node's state.", run_status, status_option_names},
    {"secret", "Make the secret that a coordinator and its nodes share.", run_secret, secret_option_names},
    {"selftest", "Check every kernel of this machine against the reference.", run_selftest, selftest_option_names},
};

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

void print_json_line(const nlohmann::ordered_json& json) {
  print_out("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

Result<bool> parse_options(OptionTable& table, const CommandContext& context, const bool* quiet) {
  if (context.describe != nullptr) {
    *context.describe = table.describe();
    return true;
  }
  for (const Command& command : kCommands)
    if (table.section() != command.name) table.add_sibling(command.name, command.option_names());
  table.add_sibling(kNodeProgram, {std::begin(kNodeOptions), std::end(kNodeOptions)});
  TERRACE_ASSIGN_OR_RETURN(const ParseOutcome outcome, table.parse(context.arguments, context.environment));
  const bool silent = quiet != nullptr && *quiet;
  for (const std::string& note : outcome.notes)
    if (!silent) print_err("terrace: {}\n", note);
  if (!outcome.print) return false;
  print_out("{}", *outcome.print);
  return true;
}

int exit_code(const Error& error) { return error.code() == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure; }

}  // namespace terrace::app
