// terrace generate
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/console.h"
#include "common/base/text_file.h"
#include "common/wire/versions.h"
#include "coordinator/app/command.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/generation.h"
#include "coordinator/app/leg_report.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/sampling_options.h"
#include "coordinator/app/text_input.h"
#include "coordinator/text/stop_matcher.h"

namespace terrace::app {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::optional<std::string> prompt;
  std::filesystem::path prompt_file;
  std::string dash;
  std::uint64_t max_tokens = 256;
  sampler::SamplingOptions sampling;
  std::vector<std::string> stops;
  bool no_special = false;
  bool stream = false;
  bool sums = false;
};

OptionTable make_table(GenerateOptions* o) {
  OptionTable table("terrace generate", "Continues a prompt and prints the continuation.");
  table.add("prompt", &o->prompt, "the text to continue").short_name('p');
  table.add("prompt-file", &o->prompt_file, "a file with the text to continue").short_name('f');
  table.add_positional("-", &o->dash, "read the text to continue from standard input");
  table.add("max-tokens", &o->max_tokens, "stop after so many tokens").short_name('n').range(0, 1ULL << 40);
  table.add("stop", &o->stops, "stop before this text");
  table.add("no-special", &o->no_special, "special tokens in the prompt are plain text, no BOS; the output shows them");
  table.add("stream", &o->stream, "print text as it is made; not with --json");
  table.add("json", &o->model.json, "print one JSON object: text, tokens, logit hashes, timings, legs");
  table.add("sums", &o->sums, "with --json: hash the sums of the experts too; slower where a card computes");
  add_sampling_options(table, &o->sampling);
  add_seed_option(table, &o->sampling);
  add_model_options(table, &o->model);
  add_activations_option(table, &o->model);
  add_trace_option(table, &o->model);
  return table;
}

Result<std::string> read_prompt(const GenerateOptions& o) {
  const int given = (o.prompt ? 1 : 0) + (o.prompt_file.empty() ? 0 : 1) + (o.dash.empty() ? 0 : 1);
  if (given != 1)
    return Error(ErrorCode::kInvalidArgument,
                 given == 0 ? "no prompt; give --prompt TEXT, --prompt-file FILE, or - for standard input"
                            : "the prompt is given more than once; use one of --prompt, --prompt-file and -");
  if (o.prompt) return *o.prompt;
  if (!o.prompt_file.empty()) return read_text_file(o.prompt_file);
  if (o.dash != "-")
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("\"{}\" is no option; a prompt is given by --prompt TEXT, or - for standard input", o.dash));
  return read_stdin();
}

Result<std::vector<std::int32_t>> encode_prompt(const text::Tokenizer& tokenizer, const std::string& text,
                                                bool special) {
  TERRACE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer.encode(text, {.parse_special = special}));
  if (special && tokenizer.leading_bos()) ids.insert(ids.begin(), *tokenizer.leading_bos());
  return ids;
}

double per_second(double count, double ms) { return ms > 0 ? count * 1000 / ms : 0; }

nlohmann::ordered_json timings_json(const Engine& engine, const Generation& g) {
  const std::uint64_t decode_tokens = g.tokens.empty() ? 0 : g.tokens.size() - 1;
  return {{"load_ms", engine.load_ms()},
          {"prompt_tokens", g.prompt_tokens},
          {"prompt_ms", g.prompt_ms},
          {"prompt_tokens_per_second", per_second(static_cast<double>(g.prompt_tokens), g.prompt_ms)},
          {"decode_tokens", decode_tokens},
          {"decode_ms", g.decode_ms},
          {"decode_tokens_per_second", per_second(static_cast<double>(decode_tokens), g.decode_ms)}};
}

void print_json(const Engine& engine, const Generation& g, std::uint64_t seed) {
  nlohmann::ordered_json json;
  json["text"] = g.text;
  json["tokens"] = g.tokens;
  json["stop_reason"] = name(g.stop_reason);
  auto& hashes = json["logits_xxh3"] = nlohmann::ordered_json::array();
  for (const std::uint64_t hash : g.logits_xxh3) hashes.push_back(fmt::format("{:016x}", hash));
  for (const std::uint64_t hash : g.sums_xxh3) json["sums_xxh3"].push_back(fmt::format("{:016x}", hash));
  json["timings"] = timings_json(engine, g);
  json["legs"] = legs_json(engine.board().report());
  json["model"] = engine.model_name();
  json["numerics_version"] = wire::kNumericsVersion;
  json["seed"] = seed;
  json["threads"] = engine.cpus().n_threads;
  json["cpus"] = engine.cpus().cpus();
  json["waiting"] = name(engine.cpus().waiting);
  print_json_line(json);
}

void print_summary(const Engine& engine, const Generation& g) {
  const std::uint64_t steps = g.tokens.empty() ? 0 : g.tokens.size() - 1;
  print_err("terrace: loaded in {:.0f} ms; prompt {} tokens, {:.1f} tok/s; {} tokens made, {:.1f} tok/s; ended by {}\n",
            engine.load_ms(), g.prompt_tokens, per_second(static_cast<double>(g.prompt_tokens), g.prompt_ms),
            g.tokens.size(), per_second(static_cast<double>(steps), g.decode_ms), name(g.stop_reason));
  print_legs(engine.board().report(), g.prompt_tokens + steps);  // the last token made goes through no layer
}

}  // namespace

std::vector<std::string> generate_option_names() {
  GenerateOptions o;
  return make_table(&o).option_names();
}

Status run_generate(const CommandContext& context) {
  GenerateOptions o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  TERRACE_RETURN_IF_ERROR(check(o.model));
  if (o.stream && o.model.json)
    return Error(ErrorCode::kInvalidArgument, "--stream and --json: the object is printed whole at the end; give one");
  if (o.sums && !o.model.json)
    return Error(ErrorCode::kInvalidArgument, "--sums: the hashes are shown by --json; give that too");
  TERRACE_RETURN_IF_ERROR(sampler::validate(o.sampling));
  if (const auto stops = text::StopMatcher::make(o.stops); !stops.ok()) return stops.error();
  TERRACE_ASSIGN_OR_RETURN(const std::string prompt, read_prompt(o));
  GenerationRequest request;
  const auto before_load = [&](Engine& opening, const arch::ModelInfo& info, std::uint32_t positions) -> Status {
    TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, opening.tokenizer());
    TERRACE_ASSIGN_OR_RETURN(request.prompt, encode_prompt(*tokenizer, prompt, !o.no_special));
    return check_prompt(request, info, positions);
  };
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                           Engine::open(o.model, context.environment, before_load));
  request.max_tokens = o.max_tokens;
  request.batch = static_cast<std::uint32_t>(engine->trunk().max_rows());
  request.sampling = o.sampling;
  request.stops = o.stops;
  request.control_as_text = o.no_special;
  request.hash_logits = o.model.json;
  request.hash_sums = o.sums;
  const bool stream = o.stream && !o.model.json;
  request.text_at_end = !stream;
  request.on_roll_back = tell_roll_back;
  const auto on_text = [&](std::string_view piece) -> Status {
    if (!stream) return {};
    write_to(stdout, piece);
    if (!stdout_is_written()) return Error(ErrorCode::kIo, kStdoutFailed);
    return {};
  };
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity pinned, engine->pin_step_thread());
  TERRACE_ASSIGN_OR_RETURN(const Generation g, generate(*engine, request, on_text));
  if (o.model.json)
    print_json(*engine, g, o.sampling.seed);
  else
    print_out("{}\n", stream ? "" : g.text);
  if (g.stop_reason == StopReason::kContext)
    print_err("terrace: the context of {} tokens is full and the text may be unfinished; {}\n",
              engine->trunk().context(), how_to_lengthen(engine->trunk().context(), engine->trunk().info()));
  if (!o.model.quiet && !o.model.json) print_summary(*engine, g);
  return engine->end_trace();
}

}  // namespace terrace::app
