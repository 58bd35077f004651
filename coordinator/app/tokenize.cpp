// terrace tokenize, terrace detokenize
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/console.h"
#include "coordinator/app/command.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/text_input.h"

namespace terrace::app {
namespace {

struct TokenizeOptions {
  ModelOptions model;
  std::optional<std::string> input;
  bool no_special = false;
};

OptionTable make_tokenize_table(TokenizeOptions* o) {
  OptionTable table("terrace tokenize", "Prints the token ids of a text as a JSON array. Adds neither BOS nor EOS.");
  table.add_positional("TEXT", &o->input, "the text; - reads standard input to its end, bytes as they are");
  table.add("no-special", &o->no_special, "control tokens in the text are plain text");
  add_file_options(table, &o->model);
  return table;
}

OptionTable make_detokenize_table(TokenizeOptions* o) {
  OptionTable table("terrace detokenize", "Prints the text of token ids, as bytes, with no newline added.");
  table.add_positional("IDS", &o->input, "a JSON array of ids; - reads it from standard input");
  table.add("no-special", &o->no_special, "control tokens are left out instead of printed as their text");
  add_file_options(table, &o->model);
  return table;
}

Result<std::string> read_input(const TokenizeOptions& o, const char* what) {
  if (!o.input)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("no {}; give it as an argument, or - for standard input", what));
  if (*o.input == "-") return read_stdin();
  return *o.input;
}

Result<text::Tokenizer> open(const TokenizeOptions& o) {
  TERRACE_ASSIGN_OR_RETURN(const std::filesystem::path path, model_file(o.model));
  TERRACE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::open(path));
  return open_tokenizer(file, o.model.quiet);
}

}  // namespace

std::vector<std::string> tokenize_option_names() {
  TokenizeOptions o;
  return make_tokenize_table(&o).option_names();
}
std::vector<std::string> detokenize_option_names() {
  TokenizeOptions o;
  return make_detokenize_table(&o).option_names();
}

Status run_tokenize(const CommandContext& context) {
  TokenizeOptions o;
  OptionTable table = make_tokenize_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_ASSIGN_OR_RETURN(const std::string text, read_input(o, "text"));
  TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, open(o));
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                           tokenizer.encode(text, {.parse_special = !o.no_special}));
  print_out("{}\n", nlohmann::json(ids).dump());
  return {};
}

Status run_detokenize(const CommandContext& context) {
  TokenizeOptions o;
  OptionTable table = make_detokenize_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_ASSIGN_OR_RETURN(const std::string input, read_input(o, "ids"));
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, read_ids(input, "the ids", INT32_MAX));
  TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, open(o));
  TERRACE_ASSIGN_OR_RETURN(const std::string text, tokenizer.decode(ids, {.special = !o.no_special}));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

}  // namespace terrace::app
