#include "coordinator/app/bench_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string_view>

#include "common/base/split_list.h"
#include "coordinator/app/open_stream.h"

namespace terrace::app {
namespace {

constexpr std::uint64_t kTokenSeed = 1;
constexpr std::uint32_t kMostTokens = 1u << 24;

// Counts the weights that steps read, by what the trunk's trace tells of their experts.
class WeightCounter {
 public:
  explicit WeightCounter(const arch::ModelInfo& info)
      : info_(info), seen_(std::size_t{info.n_layers} * info.n_experts), distinct_(info.n_layers) {}

  void see(const arch::LayerTrace& trace) {
    for (const std::uint16_t expert : trace.experts) {
      auto seen = seen_[std::size_t{trace.layer} * info_.n_experts + expert];
      if (!seen) ++distinct_[trace.layer];
      seen = true;
    }
  }
  void end_step(std::size_t n_rows, bool want_logits) {
    bytes_ += step_weight_bytes(info_, n_rows, want_logits, distinct_);
    seen_.assign(seen_.size(), false);
    distinct_.assign(distinct_.size(), 0);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const arch::ModelInfo& info_;
  std::vector<bool> seen_;               // [n_layers, n_experts] in the current step
  std::vector<std::uint32_t> distinct_;  // [n_layers]
  std::uint64_t bytes_ = 0;
};

// One run of the test after another, each on a stream of its own.
class Runner {
 public:
  Runner(Engine& engine, const BenchTest& test, std::size_t batch)
      : engine_(engine), test_(test), batch_(batch), tokens_(bench_tokens(test, engine.trunk().info().vocabulary)) {}

  // Bytes of weights that the test's steps read; its time does not count.
  Result<std::uint64_t> count_weights() {
    arch::Trunk& trunk = engine_.trunk();
    TERRACE_ASSIGN_OR_RETURN(OpenStream stream, filled_stream());
    WeightCounter counter(trunk.info());
    trunk.set_trace([&](const arch::LayerTrace& trace) { counter.see(trace); });
    const Status status =
        steps(stream, [&](std::size_t n_rows, bool want_logits) { counter.end_step(n_rows, want_logits); });
    trunk.set_trace(nullptr);
    if (!status.ok()) return status.error();
    return counter.bytes();
  }

  // Tokens a second; what the legs counted meanwhile is added to `counters`.
  Result<double> measure(std::vector<legs::LegCounters>& counters) {
    TERRACE_ASSIGN_OR_RETURN(OpenStream stream, filled_stream());
    const std::vector<legs::LegReport> before = engine_.board().report();
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_RETURN_IF_ERROR(steps(stream, [](std::size_t, bool) {}));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const std::vector<legs::LegReport> after = engine_.board().report();
    for (std::size_t i = 0; i < before.size(); ++i) add(counters[i], since(before[i].counters, after[i].counters));
    return test_.tokens() / std::max(seconds.count(), 1e-9);
  }

 private:
  std::span<const std::int32_t> fill() const { return std::span(tokens_).first(test_.depth); }
  std::span<const std::int32_t> measured() const { return std::span(tokens_).subspan(test_.depth); }

  Result<OpenStream> filled_stream() {
    TERRACE_ASSIGN_OR_RETURN(OpenStream stream, OpenStream::open(engine_.trunk()));
    TERRACE_RETURN_IF_ERROR(in_batches(stream, fill(), batch_, false, [](std::size_t, bool) {}));
    return stream;
  }

  // A prompt wants the logits of its last token, as `generate` does; a decode step always.
  template <class AfterStep>
  Status steps(OpenStream& stream, AfterStep after_step) {
    return in_batches(stream, measured(), test_.n_gen == 0 ? batch_ : 1, true, after_step);
  }

  template <class AfterStep>
  Status in_batches(OpenStream& stream, std::span<const std::int32_t> rest, std::size_t batch, bool want_logits,
                    AfterStep after_step) {
    while (!rest.empty()) {
      const auto chunk = rest.first(std::min(rest.size(), batch));
      rest = rest.subspan(chunk.size());
      const bool logits = want_logits && (rest.empty() || batch == 1);
      TERRACE_RETURN_IF_ERROR(stream.step(chunk, logits ? WantLogits::kLast : WantLogits::kNone));
      after_step(chunk.size(), logits);
    }
    return {};
  }

  Engine& engine_;
  const BenchTest& test_;
  std::size_t batch_;
  std::vector<std::int32_t> tokens_;  // [depth + tokens of the test]
};

// A run in which a node was found to compute wrong is taken again, without the node: each is found once.
template <class Fn>
auto again_if_uncertain(const Fn& run) {
  for (;;) {
    auto result = run();
    if (result.ok() || result.error().code() != ErrorCode::kUncertain) return result;
    tell_roll_back(result.error());
  }
}

Result<std::uint32_t> parse_count(const std::string& flag, std::string_view text) {
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count > kMostTokens)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--{}: \"{}\" is not allowed; give whole numbers from 0 to {}, separated by commas", flag,
                             text, kMostTokens));
  return count;
}

}  // namespace

std::vector<std::int32_t> random_tokens(std::mt19937_64& random, std::size_t n, std::uint32_t vocabulary) {
  std::vector<std::int32_t> tokens(n);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % vocabulary);
  return tokens;
}

std::vector<std::int32_t> bench_tokens(const BenchTest& test, std::uint32_t vocabulary) {
  std::mt19937_64 random(kTokenSeed);
  return random_tokens(random, std::size_t{test.depth} + test.tokens(), vocabulary);
}

std::string BenchTest::name() const { return n_gen == 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen); }

Result<std::vector<std::uint32_t>> parse_counts(const std::string& flag, const std::vector<std::string>& texts) {
  std::vector<std::uint32_t> counts;
  for (const std::string& text : texts) {
    for (const std::string_view item : split_list(text)) {
      TERRACE_ASSIGN_OR_RETURN(const std::uint32_t count, parse_count(flag, item));
      counts.push_back(count);
    }
  }
  return counts;
}

std::vector<BenchTest> bench_tests(std::span<const std::uint32_t> depths, std::span<const std::uint32_t> prompts,
                                   std::span<const std::uint32_t> generations) {
  std::vector<BenchTest> tests;
  for (const std::uint32_t depth : depths) {
    for (const std::uint32_t n : prompts)
      if (n != 0) tests.push_back({.depth = depth, .n_prompt = n, .n_gen = 0});
    for (const std::uint32_t n : generations)
      if (n != 0) tests.push_back({.depth = depth, .n_prompt = 0, .n_gen = n});
  }
  return tests;
}

Status check_fits(std::span<const BenchTest> tests, std::uint32_t context) {
  for (const BenchTest& test : tests)
    if (std::uint64_t{test.depth} + test.tokens() > context)
      return Error(
          ErrorCode::kContextFull,
          fmt::format("{} at depth {} needs {} positions and the context holds {}; lower --depth or raise --ctx-size",
                      test.name(), test.depth, std::uint64_t{test.depth} + test.tokens(), context));
  return {};
}

Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  Spread spread;
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() == 1) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.stddev = std::sqrt(squares / (n - 1));
  return spread;
}

legs::LegCounters since(const legs::LegCounters& before, const legs::LegCounters& after) {
  legs::LegCounters counted = after - before;
  counted.weight_bytes_sent = after.weight_bytes_sent;
  return counted;
}

void add(legs::LegCounters& sum, const legs::LegCounters& part) {
  sum += part;
  sum.weight_bytes_sent = part.weight_bytes_sent;
}

std::uint64_t step_weight_bytes(const arch::ModelInfo& info, std::size_t n_rows, bool want_logits,
                                std::span<const std::uint32_t> distinct) {
  std::uint64_t bytes = info.weight_bytes_per_step + (n_rows - 1) * info.embedding_row_bytes;
  if (!want_logits) bytes -= info.head_bytes;
  for (std::size_t layer = 0; layer < distinct.size(); ++layer) {
    bytes -= info.top_k * info.expert_bytes[layer];
    bytes += distinct[layer] * info.expert_bytes[layer];
  }
  return bytes;
}

double part_read_by_card(const arch::ModelInfo& info, bool trunk_on_card, double pairs_on_card) {
  const auto all = static_cast<double>(info.weight_bytes_per_step);
  double experts = 0;
  for (const std::uint64_t bytes : info.expert_bytes) experts += static_cast<double>(info.top_k * bytes);
  const double dense = all - experts - static_cast<double>(info.embedding_row_bytes);
  return (pairs_on_card * experts + (trunk_on_card ? dense : 0.0)) / all;
}

double ReadRates::seconds(double bytes, double card_part) const {
  const double on_card = card ? bytes * card_part : 0.0;
  return (bytes - on_card) / host + (card ? on_card / *card : 0.0);
}

Result<std::optional<double>> measure_card_rate(const kernels::ExpertCard* card, std::size_t n_cards) {
  if (card == nullptr || n_cards != 1) return std::optional<double>();
  const Result<double> rate = card->read_rate();
  if (rate.ok()) return std::optional(*rate);
  if (rate.error().code() == ErrorCode::kUnsupported) return std::optional<double>();
  return rate.error();
}

Result<BenchResult> run_test(Engine& engine, const BenchTest& test, const BenchOptions& options) {
  BenchResult result;
  result.test = test;
  result.counters.resize(engine.board().report().size());
  Runner runner(engine, test, std::min<std::size_t>(options.batch, engine.trunk().max_rows()));
  TERRACE_ASSIGN_OR_RETURN(const std::uint64_t weight_bytes,
                           again_if_uncertain([&] { return runner.count_weights(); }));
  result.weight_bytes_per_token = static_cast<double>(weight_bytes) / test.tokens();
  std::vector<double> rates;
  for (std::uint32_t i = 0; i < options.repeats; ++i) {
    TERRACE_ASSIGN_OR_RETURN(const double rate, again_if_uncertain([&] { return runner.measure(result.counters); }));
    rates.push_back(rate);
  }
  const Spread spread = spread_of(rates);
  result.tokens_per_second = spread.mean;
  result.tokens_per_second_stddev = spread.stddev;
  std::uint64_t wire = 0;
  for (const legs::LegCounters& counters : result.counters) wire += counters.bytes_sent + counters.bytes_received;
  result.measured_tokens = std::uint64_t{test.tokens()} * options.repeats;
  result.wire_bytes_per_token = static_cast<double>(wire) / static_cast<double>(result.measured_tokens);
  return result;
}

}  // namespace terrace::app
