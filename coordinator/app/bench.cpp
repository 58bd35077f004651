// terrace bench
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/console.h"
#include "common/base/units.h"
#include "common/threads/cpus.h"
#include "common/threads/pool.h"
#include "coordinator/app/bandwidth.h"
#include "coordinator/app/bench_legs.h"
#include "coordinator/app/bench_run.h"
#include "coordinator/app/bench_serving.h"
#include "coordinator/app/bench_streams.h"
#include "coordinator/app/command.h"
#include "coordinator/app/commit.h"
#include "coordinator/app/dot_rates.h"
#include "coordinator/app/engine.h"
#include "coordinator/app/leg_report.h"
#include "coordinator/app/model_options.h"
#include "coordinator/app/prompt_limits.h"
#include "coordinator/legs/dispatcher.h"
#include "coordinator/planner/prediction_file.h"
#include "coordinator/serve/scheduler/batcher.h"

namespace terrace::app {
namespace {

enum class Output : std::uint8_t { kMarkdown, kJson };

constexpr std::uint32_t kMostStreams = 256;
constexpr std::uint32_t kServedStreams = 8;
constexpr std::uint32_t kLeastServedStreams = 3;

struct Options {
  ModelOptions model;
  std::vector<std::string> prompts = {"512"};
  std::vector<std::string> generations = {"64"};
  std::vector<std::string> depths = {"0"};
  std::uint32_t repeats = 5;
  std::uint32_t streams = 0;
  bool serving = false;
  bool legs_alone = false;
  Output output = Output::kMarkdown;
  bool limits = false;
  Bytes limits_buffer = default_read_buffer();
};

OptionTable make_table(Options* o) {
  OptionTable table("terrace bench",
                    "Measures tokens a second, beside the memory bandwidth of the threads that make them.");
  table.add("n-prompt", &o->prompts, "prompts of so many tokens; 0: none").short_name('p').value_name("N,...");
  table.add("n-gen", &o->generations, "so many tokens one by one; 0: none").short_name('n').value_name("N,...");
  table.add("depth", &o->depths, "tokens that are in the cache before; each test at each depth")
      .short_name('d')
      .value_name("N,...");
  table.add("repeats", &o->repeats, "measured runs of each test, behind one that is not")
      .short_name('r')
      .range(1, 1000);
  table
      .add("streams", &o->streams,
           "also decode so many streams at once, beside what their weights and kernels allow; 0: none")
      .range(0, kMostStreams);
  table.add("legs-alone", &o->legs_alone,
            "also replay what the trunk and each leg computed of a token, each alone, beside the token's time");
  table.add("serving", &o->serving,
            "also measure what serving adds: the wait for a first token, steps with a prompt in them, "
            "the cost of a token, a kept prefix; with --streams slots, or 8");
  table.add_choice("output", &o->output, {{"md", Output::kMarkdown}, {"json", Output::kJson}}, "form of the result")
      .short_name('o');
  table.add("json", &o->model.json, "the same as --output json");
  table.add("limits", &o->limits,
            "show how fast memory can be read, in each way tried, and how fast the kernels go "
            "beside that (with JSON: on stderr)");
  table
      .add("limits-buffer", &o->limits_buffer,
           "read so much for it; the default is 4 last-level caches, from 256M to 1G")
      .range(kReadUnit, 1ULL << 40);
  add_model_options(table, &o->model);
  add_activations_option(table, &o->model);
  add_trace_option(table, &o->model);
  return table;
}

bool any_generates(const std::vector<BenchTest>& tests) {
  for (const BenchTest& test : tests)
    if (test.n_gen != 0) return true;
  return false;
}

Result<std::vector<BenchTest>> read_tests(const Options& o) {
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> prompts, parse_counts("n-prompt", o.prompts));
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> generations, parse_counts("n-gen", o.generations));
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> depths, parse_counts("depth", o.depths));
  std::vector<BenchTest> tests = bench_tests(depths, prompts, generations);
  if (o.streams == 1 || (o.serving && o.streams != 0 && o.streams < kLeastServedStreams))
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--streams {}: give 2 or more, {} with --serving", o.streams, kLeastServedStreams));
  if (tests.empty() && !o.limits && !o.serving)
    return Error(ErrorCode::kInvalidArgument,
                 "nothing to measure: --n-prompt and --n-gen are 0; give one of them, or --limits");
  if (o.streams != 0 && !o.serving && !any_generates(tests))
    return Error(ErrorCode::kInvalidArgument,
                 "--streams decodes the tokens of --n-gen, which is 0; say how many tokens to generate");
  if (o.legs_alone && !any_generates(tests))
    return Error(ErrorCode::kInvalidArgument,
                 "--legs-alone replays the tokens of --n-gen, which is 0; say how many tokens to generate");
  return tests;
}

std::string read_table(const ReadBandwidth& b) {
  std::string text = fmt::format("read bandwidth of {} thread{}, {}, buffer {}\n\n", b.threads,
                                 b.threads == 1 ? "" : "s", kernels::name(b.isa), format_size(b.buffer.value));
  text += "| pages | streams | prefetch |   GB/s |\n|-------|--------:|---------:|-------:|\n";
  for (const ReadRate& rate : b.rates)
    text += fmt::format("| {:<5} | {:>7} | {:>8} | {:>6.2f} |\n", rate.huge_pages ? "2M" : "4K", rate.n_streams,
                        rate.prefetch_bytes == 0 ? "0" : format_size(rate.prefetch_bytes), rate.gb_per_second);
  if (!b.note.empty()) text += fmt::format("\n{}\n", b.note);
  return text + fmt::format("\nbest: {:.2f} GB/s; commit {}\n", b.best().gb_per_second, commit());
}

// Each type's reading of weights as a share of the best plain read.
std::string dots_table(const std::vector<DotRate>& dots, double best) {
  std::string text = fmt::format(
      "expert products of the same threads: rows of {} values, {} at a time; 1 x row, and {} (10^9 operations)\n\n",
      kDotRateColumns, kDotRateRows, kDotRateXRows);
  text += "| weights | kernel                     | 4K GB/s | share | 2M GB/s | share | prompt Gop/s |\n";
  text += "|---------|----------------------------|--------:|------:|--------:|------:|-------------:|\n";
  const auto rate = [](double gb) { return gb == 0 ? std::string() : fmt::format("{:.2f}", gb); };
  const auto share = [&](double gb) { return gb == 0 ? std::string() : fmt::format("{:.0f}%", 100 * gb / best); };
  for (const DotRate& d : dots)
    text += fmt::format("| {:<7} | {:<26} | {:>7} | {:>5} | {:>7} | {:>5} | {:>12.1f} |\n", info(d.type).name,
                        d.kernel_name, rate(d.gb_per_second), share(d.gb_per_second), rate(d.huge_gb_per_second),
                        share(d.huge_gb_per_second), d.prompt_gops);
  return text;
}

// What all rows of a run share.
struct Run {
  const Engine& engine;
  const arch::ModelInfo& info;
  std::size_t threads;
  std::optional<ReadBandwidth> bandwidth;
  std::optional<double> card_read_rate = {};                  // bytes a second
  std::size_t batch = 0;                                      // rows of a prompt's steps
  const std::optional<planner::StatedPrediction>& predicted;  // by the plan file

  // Tokens a second that the plan said for such a test; nothing where it said none: another prompt, another depth.
  std::optional<double> prediction(const BenchResult& r) const {
    if (!predicted || r.test.depth != 0) return std::nullopt;
    if (r.test.n_gen != 0) return predicted->decode;
    if (predicted->prompt_rows == 0 || r.test.n_prompt % predicted->prompt_rows != 0 || r.test.n_prompt > 512)
      return std::nullopt;
    return predicted->prompt;
  }
  // In how many parts the test's steps run.
  std::size_t parts(const BenchResult& r) const {
    const std::size_t rows = r.test.n_gen != 0 ? 1 : std::min<std::size_t>(r.test.n_prompt, batch);
    const arch::TrunkOptions& trunk = engine.made_of().trunk;
    const bool nodes = engine.dispatcher().computes_elsewhere();
    if (!trunk.on_card) return arch::step_parts(trunk, r.test.n_gen != 0, rows, nodes);
    if (r.test.n_gen != 0 || engine.dispatcher().all_on_card()) return 1;
    return arch::parts_on_card(trunk,
                               {.n_rows = rows, .n_experts = info.n_experts, .top_k = info.top_k, .nodes = nodes});
  }
  std::vector<PromptLimit> limits(const BenchResult& r) const {
    return predicted ? prompt_limits(r, engine.board().report(), *predicted) : std::vector<PromptLimit>();
  }
  // Of the rate at which the weights of a step are read where they lie.
  std::optional<double> share(const BenchResult& r) const {
    if (r.test.n_gen == 0 || !bandwidth) return std::nullopt;
    const bool reads_on_card = engine.made_of().card != nullptr;
    if (reads_on_card && !card_read_rate) return std::nullopt;
    const ReadRates rates{bandwidth->best().gb_per_second * 1e9, card_read_rate};
    return r.tokens_per_second * rates.seconds(r.weight_bytes_per_token, card_part(r));
  }
  double card_part(const BenchResult& r) const {
    const std::vector<legs::LegReport> legs = engine.board().report();
    double pairs = 0, on_card = 0;
    for (std::size_t i = 0; i < r.counters.size(); ++i) {
      const auto computed = static_cast<double>(r.counters[i].pairs);
      pairs += computed;
      if (legs[i].kind == legs::LegKind::kCard) on_card += computed;
    }
    return part_read_by_card(info, engine.made_of().trunk.card != nullptr, on_card / std::max(pairs, 1.0));
  }
};

nlohmann::ordered_json to_json(const Run& run, const BenchResult& r) {
  nlohmann::ordered_json row;
  row["test"] = r.test.name();
  row["model"] = run.engine.model_name();
  row["threads"] = run.threads;
  row["cpus"] = run.engine.cpus().cpus();
  row["waiting"] = name(run.engine.cpus().waiting);
  row["isa"] = kernels::name(run.engine.ops().isa);
  row["depth"] = r.test.depth;
  row["n_prompt"] = r.test.n_prompt;
  row["n_gen"] = r.test.n_gen;
  row["tokens_per_second"] = r.tokens_per_second;
  row["tokens_per_second_stddev"] = r.tokens_per_second_stddev;
  row["weight_gb_per_second"] = r.weight_gb_per_second();
  // A prompt is bound by arithmetic, not by memory: no share.
  row["share_of_bandwidth"] = nullptr;
  if (const auto share = run.share(r)) row["share_of_bandwidth"] = *share;
  if (run.card_read_rate) row["card_read_gb_per_second"] = *run.card_read_rate / 1e9;
  row["wire_bytes_per_token"] = r.wire_bytes_per_token;
  row["legs"] = legs_json(run.engine.board().report(), r.counters);
  if (run.predicted) {
    row["predicted_tokens_per_second"] = nullptr;
    if (const auto predicted = run.prediction(r)) row["predicted_tokens_per_second"] = *predicted;
    row["predicted_at"] = run.predicted->date;
  }
  row["parts"] = run.parts(r);
  if (const auto limits = run.limits(r); !limits.empty()) {
    row["prompt_limits"] = to_json(limits);
    row["share_of_least_limit"] = r.tokens_per_second / std::max(least(limits)->tokens_per_second, 1e-9);
  }
  row["commit"] = commit();
  return row;
}

void print_table(const Run& run, const std::vector<BenchResult>& results) {
  print_out("{}: {} threads, {}, commit {}\n\n", run.engine.model_name(), run.threads,
            kernels::name(run.engine.ops().isa), commit());
  print_out("| test    | depth |     tok/s |  stddev | weights GB/s | of bandwidth | wire B/token |\n");
  print_out("|---------|------:|----------:|--------:|-------------:|-------------:|-------------:|\n");
  for (const BenchResult& r : results) {
    const auto share = run.share(r);
    print_out("| {:<7} | {:>5} | {:>9.2f} | {:>7.2f} | {:>12.2f} | {:>12} | {:>12.0f} |\n", r.test.name(), r.test.depth,
              r.tokens_per_second, r.tokens_per_second_stddev, r.weight_gb_per_second(),
              share ? fmt::format("{:.1f}%", 100 * *share) : "", r.wire_bytes_per_token);
  }
  if (run.predicted) {
    print_out("\npredicted by the plan at {}:\n", run.predicted->date);
    for (const BenchResult& r : results)
      if (const auto predicted = run.prediction(r))
        print_out("  {:<7} {:>9.2f} tok/s, measured {:>9.2f}: {:.3f} of it\n", r.test.name(), *predicted,
                  r.tokens_per_second, r.tokens_per_second / std::max(*predicted, 1e-9));
  }
  for (const BenchResult& r : results)
    if (run.parts(r) > 1) print_out("\n{}: steps run in {} parts\n", r.test.name(), run.parts(r));
  bool heading = false;
  for (const BenchResult& r : results)
    if (const auto limits = run.limits(r); !limits.empty()) {
      if (!std::exchange(heading, true))
        print_out("\ntok/s if only one thing had to be done, links as the plan has them:\n");
      print_out("{}", to_text(r, limits));
    }
  if (run.bandwidth)
    print_out("\nread bandwidth of the same threads: {:.2f} GB/s\n", run.bandwidth->best().gb_per_second);
  if (run.card_read_rate) print_out("of the card, of its memory: {:.2f} GB/s\n", *run.card_read_rate / 1e9);
}

Status print_limits(const Options& o, Parallel& parallel, const ReadBandwidth& bandwidth) {
  TERRACE_ASSIGN_OR_RETURN(const std::vector<DotRate> dots,
                           measure_dot_rates(parallel, kernels::detect_cpu_features(), o.model.isa, bandwidth.buffer));
  const std::string text = read_table(bandwidth) + "\n" + dots_table(dots, bandwidth.best().gb_per_second);
  if (o.output == Output::kJson)
    print_err("{}", text);
  else
    print_out("{}\n", text);
  return {};
}

// --limits and no test: needs no model.
Status run_limits(const Options& o) {
  TERRACE_ASSIGN_OR_RETURN(const kernels::Ops ops, kernels::select_ops(kernels::detect_cpu_features(), o.model.isa));
  TERRACE_ASSIGN_OR_RETURN(const CpuChoice cpus,
                           choose_cpus(cpus_of_this_machine(), {o.model.threads, o.model.cpu_list}));
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Pool> pool, Pool::create(cpus));
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity pinned, pool->pin_caller());
  TERRACE_ASSIGN_OR_RETURN(const ReadBandwidth bandwidth, measure_read_bandwidth(*pool, ops.isa, o.limits_buffer));
  return print_limits(o, *pool, bandwidth);
}

// What a row of another kind than BenchResult says of the run, around its own keys.
nlohmann::ordered_json with_run(const Engine& engine, nlohmann::ordered_json own) {
  own["model"] = engine.model_name();
  own["threads"] = engine.cpus().n_threads;
  own["cpus"] = engine.cpus().cpus();
  own["waiting"] = name(engine.cpus().waiting);
  own["isa"] = kernels::name(engine.ops().isa);
  own["commit"] = commit();
  return own;
}

// Those of --streams, at each depth and of each number of tokens.
Status run_all_streams(const Options& o, const std::vector<BenchTest>& tests, const Run& run, Engine& engine,
                       nlohmann::ordered_json& rows) {
  for (const BenchTest& test : tests) {
    if (test.n_gen == 0 || o.streams == 0) continue;
    const StreamsTest streams{.streams = o.streams, .depth = test.depth, .n_gen = test.n_gen};
    if (!o.model.quiet) print_err("terrace: {} at depth {}, {} times\n", streams.name(), streams.depth, o.repeats);
    TERRACE_ASSIGN_OR_RETURN(const StreamsResult result,
                             run_streams(engine, streams, o.repeats, run.bandwidth->best().gb_per_second));
    if (o.output == Output::kMarkdown) print_out("\n{}", to_text(result));
    rows.push_back(with_run(engine, to_json(result)));
  }
  return {};
}

// Those of --legs-alone, of each test that generates.
Status run_all_legs_alone(const Options& o, const std::vector<BenchTest>& tests, Engine& engine,
                          nlohmann::ordered_json& rows) {
  for (const BenchTest& test : tests) {
    if (test.n_gen == 0 || !o.legs_alone) continue;
    if (!o.model.quiet)
      print_err("terrace: {} at depth {}, each leg alone, {} times\n", test.name(), test.depth, o.repeats);
    TERRACE_ASSIGN_OR_RETURN(const LegsAloneResult result, run_legs_alone(engine, test, o.repeats));
    if (o.output == Output::kMarkdown) print_out("\n{}", to_text(result));
    rows.push_back(with_run(engine, to_json(result)));
  }
  return {};
}

// Those that read_tests() names; up to the first that fails.
Status run_each(const Options& o, const std::vector<BenchTest>& tests, Engine& engine,
                std::vector<BenchResult>& results) {
  const BenchOptions options{.repeats = o.repeats, .batch = static_cast<std::uint32_t>(engine.trunk().max_rows())};
  for (const BenchTest& test : tests) {
    if (!o.model.quiet) print_err("terrace: {} at depth {}, {} times\n", test.name(), test.depth, o.repeats);
    TERRACE_ASSIGN_OR_RETURN(BenchResult result, run_test(engine, test, options));
    results.push_back(std::move(result));
  }
  return {};
}

std::size_t n_cards(const Engine& engine) {
  const std::vector<legs::LegReport> legs = engine.board().report();
  return static_cast<std::size_t>(std::ranges::count(legs, legs::LegKind::kCard, &legs::LegReport::kind));
}

Status run_tests(const Options& o, const std::vector<BenchTest>& tests, Engine& engine, nlohmann::ordered_json& rows) {
  TERRACE_RETURN_IF_ERROR(check_fits(tests, engine.trunk().context()));
  TERRACE_ASSIGN_OR_RETURN(const ThreadAffinity pinned, engine.pin_step_thread());
  Run run{.engine = engine,
          .info = engine.trunk().info(),
          .threads = engine.parallel().n_workers(),
          .bandwidth = std::nullopt,
          .batch = engine.trunk().max_rows(),
          .predicted = engine.made_of().stated};
  if (o.limits || any_generates(tests)) {
    TERRACE_ASSIGN_OR_RETURN(run.bandwidth,
                             measure_read_bandwidth(engine.parallel(), engine.ops().isa, o.limits_buffer));
    if (!o.limits && !run.bandwidth->note.empty() && !o.model.quiet) print_err("terrace: {}\n", run.bandwidth->note);
    TERRACE_ASSIGN_OR_RETURN(run.card_read_rate, measure_card_rate(engine.made_of().card, n_cards(engine)));
  }
  if (o.limits) TERRACE_RETURN_IF_ERROR(print_limits(o, engine.parallel(), *run.bandwidth));
  std::vector<BenchResult> results;
  const Status status = run_each(o, tests, engine, results);
  if (o.output == Output::kMarkdown && !results.empty()) print_table(run, results);
  for (const BenchResult& result : results) rows.push_back(to_json(run, result));
  TERRACE_RETURN_IF_ERROR(status);
  TERRACE_RETURN_IF_ERROR(run_all_legs_alone(o, tests, engine, rows));
  return run_all_streams(o, tests, run, engine, rows);
}

// Of an engine of its own, opened and closed before another one is.
Status run_engine_tests(const Options& o, const CommandContext& context, const std::vector<BenchTest>& tests,
                        nlohmann::ordered_json& rows) {
  ModelOptions model = o.model;
  model.records_experts = o.legs_alone;
  if (o.streams != 0) model.streams = o.streams + serve::kSpareStreams;
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(model, context.environment));
  if (o.legs_alone) TERRACE_RETURN_IF_ERROR(check_legs_alone(*engine));
  TERRACE_RETURN_IF_ERROR(run_tests(o, tests, *engine, rows));
  return engine->end_trace();
}

Status run_serving_tests(const Options& o, const CommandContext& context, nlohmann::ordered_json& rows) {
  if (!o.model.quiet) print_err("terrace: serving, {} times\n", o.repeats);
  ServingTest test;
  test.repeats = o.repeats;
  test.streams = o.streams == 0 ? kServedStreams : o.streams;
  ModelOptions model = o.model;
  model.trace.clear();  // its file has the other tests
  TERRACE_ASSIGN_OR_RETURN(const ServingResult result, run_serving(model, context.environment, test));
  if (o.output == Output::kMarkdown) print_out("\n{}", to_text(result));
  for (nlohmann::ordered_json& row : to_json(result)) rows.push_back(std::move(row));
  return {};
}

Status run_parts(const Options& o, const CommandContext& context, const std::vector<BenchTest>& tests,
                 nlohmann::ordered_json& rows) {
  if (!tests.empty()) TERRACE_RETURN_IF_ERROR(run_engine_tests(o, context, tests, rows));
  return o.serving ? run_serving_tests(o, context, rows) : Status();
}

}  // namespace

std::vector<std::string> bench_option_names() {
  Options o;
  return make_table(&o).option_names();
}

Status run_bench(const CommandContext& context) {
  Options o;
  OptionTable table = make_table(&o);
  TERRACE_ASSIGN_OR_RETURN(const bool done, parse_options(table, context, &o.model.quiet));
  if (done) return {};
  if (o.model.json) o.output = Output::kJson;
  TERRACE_RETURN_IF_ERROR(check(o.model));
  TERRACE_ASSIGN_OR_RETURN(const std::vector<BenchTest> tests, read_tests(o));
  if (tests.empty() && o.limits) TERRACE_RETURN_IF_ERROR(run_limits(o));
  auto rows = nlohmann::ordered_json::array();
  const Status status = run_parts(o, context, tests, rows);
  // What was measured is told, whatever failed behind it.
  if (o.output == Output::kJson && (status.ok() || !rows.empty())) print_json_line(rows);
  return status;
}

}  // namespace terrace::app
