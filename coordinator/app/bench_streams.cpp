#include "coordinator/app/bench_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "coordinator/app/kernel_replay.h"
#include "coordinator/app/timed_trunk.h"
#include "coordinator/serve/api/context.h"
#include "coordinator/serve/scheduler/batcher.h"
#include "coordinator/text/text_output.h"

namespace terrace::app {
namespace {

using Clock = std::chrono::steady_clock;

// Tokens that a stream may make while others still have their prompts.
constexpr std::uint32_t kTokensAhead = 256;

// Nobody reads these texts; what went wrong is kept.
class SilentListener final : public serve::Listener {
 public:
  explicit SilentListener(Status& status) : status_(status) {}
  void on_piece(const serve::Piece&, const serve::Timings&) override {}
  void on_end(const serve::End&) override {}
  void on_error(const Error& error, const serve::Timings&) override { status_ = error; }

 private:
  Status& status_;
};

// Different for each stream, the same in each run.
std::vector<std::int32_t> prompt_of(std::uint32_t stream, std::uint32_t n_tokens, std::uint32_t vocabulary) {
  std::mt19937_64 random(1000 + stream);
  return random_tokens(random, n_tokens, vocabulary);
}

struct Decoded {
  double seconds = 0;  // of all measured steps
  double trunk_seconds = 0;
  std::vector<RecordedStep> steps;
};

class StreamsRun {
 public:
  StreamsRun(Engine& engine, const text::Tokenizer& tokenizer, const StreamsTest& test)
      : engine_(engine), tokenizer_(tokenizer), test_(test), info_(engine.trunk().info()), trunk_(engine.trunk()) {}

  // n_gen tokens of each of so many streams, once all of them decode.
  Result<Decoded> decode(std::uint32_t n_streams) {
    serve::SchedulerOptions options;
    options.slots = n_streams;
    options.resting_bytes = 0;
    const serve::SchedulerParts parts{trunk_, tokenizer_, engine_.ops(), engine_.parallel(), &engine_.board()};
    serve::Batcher batcher(parts, options);
    for (std::uint32_t stream = 0; stream < n_streams; ++stream) {
      TERRACE_ASSIGN_OR_RETURN(auto job, make_job(stream));
      batcher.start(std::move(job));
    }
    const Result<Decoded> decoded = measure(batcher, n_streams);
    engine_.trunk().set_trace(nullptr);
    batcher.end_all(serve::EndReason::kCancelled);
    if (!status_.ok()) return status_.error();
    return decoded;
  }

 private:
  Result<std::unique_ptr<serve::Job>> make_job(std::uint32_t stream) {
    serve::Request request;
    request.prompt = prompt_of(stream, std::max(test_.depth, 1u), info_.vocabulary);
    request.sampling = serve::api::default_sampling();
    request.sampling.seed = stream;
    request.ignore_eos = true;
    TERRACE_ASSIGN_OR_RETURN(text::TextOutput output, text::TextOutput::make(tokenizer_, {.special = false}, {}));
    return std::make_unique<serve::Job>(serve::Job{stream + 1, std::move(request),
                                                   std::make_shared<SilentListener>(status_), std::move(output),
                                                   std::nullopt, Clock::now()});
  }

  bool step(serve::Batcher& batcher) {
    if (!batcher.plan_step()) return false;
    batcher.take_step();
    return status_.ok();
  }

  Result<Decoded> measure(serve::Batcher& batcher, std::uint32_t n_streams) {
    const auto all_decode = [&](const TimedStep& s) { return s.decode_rows == n_streams && s.prompt_rows == 0; };
    // The last of these steps made the last stream's first token, or more.
    for (bool ready = false; !ready;) {
      if (!step(batcher)) return failed();
      ready = all_decode(trunk_.take().back());
    }
    Decoded decoded;
    record(decoded.steps);
    const auto begin = Clock::now();
    for (RecordedStep& recorded : decoded.steps) {
      recording_ = &recorded;
      if (!step(batcher)) return failed();
    }
    decoded.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (const TimedStep& taken : trunk_.take()) {
      if (!all_decode(taken)) return Error(ErrorCode::kInternal, "a measured step had other rows than one a stream");
      decoded.trunk_seconds += taken.seconds();
    }
    for (RecordedStep& recorded : decoded.steps) recorded.n_rows = recorded.n_logits = n_streams;
    return decoded;
  }

  // Every row's experts, into memory that is there already.
  void record(std::vector<RecordedStep>& steps) {
    steps.resize(test_.n_gen);
    for (RecordedStep& s : steps) s.experts.reserve(std::size_t{info_.n_layers} * info_.top_k * test_.streams);
    engine_.trunk().set_trace([this](const arch::LayerTrace& trace) {
      recording_->experts.insert(recording_->experts.end(), trace.experts.begin(), trace.experts.end());
    });
  }

  Error failed() const {
    return status_.ok() ? Error(ErrorCode::kInternal, "the streams had nothing to compute") : status_.error();
  }

  Engine& engine_;
  const text::Tokenizer& tokenizer_;
  const StreamsTest test_;
  const arch::ModelInfo& info_;
  TimedTrunk trunk_;
  Status status_;
  RecordedStep* recording_ = nullptr;
};

Status check_room(const StreamsTest& test, Engine& engine) {
  const std::uint64_t positions = std::uint64_t{std::max(test.depth, 1u)} + kTokensAhead + test.n_gen;
  if (positions <= engine.trunk().context()) return {};
  return Error(ErrorCode::kContextFull,
               fmt::format("{} at depth {} needs {} positions and the context holds {}; lower --depth or raise "
                           "--ctx-size",
                           test.name(), test.depth, positions, engine.trunk().context()));
}

}  // namespace

std::string StreamsTest::name() const { return fmt::format("tg{}x{}", n_gen, streams); }

double StreamsResult::bound() const { return test.streams / std::max({weight_seconds(), kernel_seconds, 1e-9}); }

Result<StreamsResult> run_streams(Engine& engine, const StreamsTest& test, std::uint32_t repeats,
                                  double read_gb_per_second) {
  TERRACE_RETURN_IF_ERROR(check_room(test, engine));
  TERRACE_ASSIGN_OR_RETURN(const text::Tokenizer* tokenizer, engine.tokenizer());
  const arch::ModelInfo& info = engine.trunk().info();
  TERRACE_ASSIGN_OR_RETURN(const auto replay,
                           KernelReplay::make(engine.made_of(), info, engine.parallel(), engine.ops()));
  StreamsRun run(engine, *tokenizer, test);
  StreamsResult result;
  result.test = test;
  result.read_gb_per_second = read_gb_per_second;
  std::vector<double> rates, one_rates;
  const double n_steps = double{1} * test.n_gen * repeats;
  for (std::uint32_t i = 0; i <= repeats; ++i) {
    TERRACE_ASSIGN_OR_RETURN(const Decoded one, run.decode(1));
    TERRACE_ASSIGN_OR_RETURN(const Decoded all, run.decode(test.streams));
    const double kernels = replay->seconds(all.steps);
    if (i == 0) continue;  // memory and caches are warm after it
    one_rates.push_back(test.n_gen / one.seconds);
    rates.push_back(double{1} * test.n_gen * test.streams / all.seconds);
    result.step_seconds += all.seconds / n_steps;
    result.trunk_seconds += all.trunk_seconds / n_steps;
    result.one_step_seconds += one.seconds / n_steps;
    result.one_trunk_seconds += one.trunk_seconds / n_steps;
    result.kernel_seconds += kernels / n_steps;
    for (const RecordedStep& step : all.steps) {
      const std::vector<std::uint32_t> distinct = distinct_experts(step, info);
      result.weight_bytes += static_cast<double>(step_weight_bytes(info, step.n_rows, true, distinct)) / n_steps;
      for (const std::uint32_t n : distinct) result.distinct_experts += n / (n_steps * info.n_layers);
    }
  }
  result.tokens_per_second = spread_of(rates);
  result.one_stream = spread_of(one_rates);
  return result;
}

nlohmann::ordered_json to_json(const StreamsResult& r) {
  nlohmann::ordered_json row;
  row["test"] = r.test.name();
  row["streams"] = r.test.streams;
  row["depth"] = r.test.depth;
  row["n_prompt"] = 0;
  row["n_gen"] = r.test.n_gen;
  row["tokens_per_second"] = r.tokens_per_second.mean;
  row["tokens_per_second_stddev"] = r.tokens_per_second.stddev;
  row["one_stream_tokens_per_second"] = r.one_stream.mean;
  row["one_stream_tokens_per_second_stddev"] = r.one_stream.stddev;
  row["times_one_stream"] = r.tokens_per_second.mean / r.one_stream.mean;
  row["step_ms"] = r.step_seconds * 1e3;
  row["scheduler_us_per_step"] = (r.step_seconds - r.trunk_seconds) * 1e6;
  row["one_stream_scheduler_us_per_step"] = (r.one_step_seconds - r.one_trunk_seconds) * 1e6;
  row["distinct_experts_per_layer"] = r.distinct_experts;
  row["weight_bytes_per_step"] = r.weight_bytes;
  row["weight_gb_per_second"] = r.weight_bytes / r.step_seconds / 1e9;
  row["share_of_bandwidth"] = r.weight_seconds() / r.step_seconds;
  row["bound"] = {{"read_gb_per_second", r.read_gb_per_second},
                  {"weights_ms", r.weight_seconds() * 1e3},
                  {"kernels_ms", r.kernel_seconds * 1e3},
                  {"tokens_per_second", r.bound()}};
  row["share_of_bound"] = r.tokens_per_second.mean / r.bound();
  return row;
}

std::string to_text(const StreamsResult& r) {
  std::string text =
      fmt::format("{} at depth {}: {:.2f} ± {:.2f} tok/s together, one stream alone {:.2f} ± {:.2f}: {:.2f} times\n",
                  r.test.name(), r.test.depth, r.tokens_per_second.mean, r.tokens_per_second.stddev, r.one_stream.mean,
                  r.one_stream.stddev, r.tokens_per_second.mean / r.one_stream.mean);
  text += fmt::format("  a step {:.3f} ms, of it outside the trunk {:.0f} us (one stream: {:.3f} ms, {:.0f} us)\n",
                      r.step_seconds * 1e3, (r.step_seconds - r.trunk_seconds) * 1e6, r.one_step_seconds * 1e3,
                      (r.one_step_seconds - r.one_trunk_seconds) * 1e6);
  text += fmt::format("  weights of a step {:.1f} MB ({:.1f} experts a layer) at {:.2f} GB/s: {:.3f} ms\n",
                      r.weight_bytes / 1e6, r.distinct_experts, r.read_gb_per_second, r.weight_seconds() * 1e3);
  text += fmt::format("  kernels of the same rows, replayed: {:.3f} ms\n", r.kernel_seconds * 1e3);
  text += fmt::format("  bound {} / max of both = {:.2f} tok/s; reached {:.1f}%\n", r.test.streams, r.bound(),
                      100 * r.tokens_per_second.mean / r.bound());
  return text;
}

}  // namespace terrace::app
