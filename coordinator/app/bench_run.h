// The measuring of `terrace bench`: what is run, how often, and what its numbers are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/app/engine.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/legs/leg.h"

namespace terrace::app {

// A prompt of n_prompt tokens in batches, or n_gen tokens one a step; the other is 0. Before it the cache is filled
// with `depth` tokens, which are not measured.
struct BenchTest {
  std::uint32_t depth = 0;
  std::uint32_t n_prompt = 0;
  std::uint32_t n_gen = 0;

  std::uint32_t tokens() const { return n_prompt + n_gen; }
  std::string name() const;  // "pp512", "tg64"
  bool operator==(const BenchTest&) const = default;
};

// Numbers separated by commas, as one list from all uses of a flag. kInvalidArgument: names the flag and what it found.
Result<std::vector<std::uint32_t>> parse_counts(const std::string& flag, const std::vector<std::string>& texts);

// Depth by depth: prompts, then generations. A length of 0 is left out.
std::vector<BenchTest> bench_tests(std::span<const std::uint32_t> depths, std::span<const std::uint32_t> prompts,
                                   std::span<const std::uint32_t> generations);

// kContextFull: the first test that needs more positions than a stream can hold.
Status check_fits(std::span<const BenchTest> tests, std::uint32_t context);

// n tokens of a vocabulary, each as likely as any other.
std::vector<std::int32_t> random_tokens(std::mt19937_64& random, std::size_t n, std::uint32_t vocabulary);

// The tokens that the test is run on, those of its depth first: always the same for a vocabulary.
std::vector<std::int32_t> bench_tokens(const BenchTest& test, std::uint32_t vocabulary);

struct BenchOptions {
  std::uint32_t repeats = 5;
  std::uint32_t batch = 512;  // rows of one prompt step
};

struct BenchResult {
  BenchTest test;
  double tokens_per_second = 0;  // mean of the repeats
  double tokens_per_second_stddev = 0;
  std::uint64_t measured_tokens = 0;        // of all repeats
  double weight_bytes_per_token = 0;        // read by the steps, all legs together
  std::vector<legs::LegCounters> counters;  // [legs] of the measured parts of all repeats; weight_bytes_sent: so far
  double wire_bytes_per_token = 0;          // both directions, all legs, without weights

  double weight_gb_per_second() const { return weight_bytes_per_token * tokens_per_second / 1e9; }
};

// Bytes a second that the run's one card reads of its memory, measured now. Nothing without a card, with several (whose
// parts of a step are not told apart), or of one that has no such measure. card: the first; null: none.
Result<std::optional<double>> measure_card_rate(const kernels::ExpertCard* card, std::size_t n_cards);

// Runs the test once unmeasured and then options.repeats times, each on a fresh stream, with random tokens of a fixed
// seed. Errors as the trunk's. Owner thread of the engine.
Result<BenchResult> run_test(Engine& engine, const BenchTest& test, const BenchOptions& options);

// ---- arithmetic ----------------------------------------------------------------------------------------------------
struct Spread {
  double mean = 0;
  double stddev = 0;  // of a sample: n - 1; 0 for one value
};
Spread spread_of(std::span<const double> values);

// after - before, field by field; weight_bytes_sent as it is after.
legs::LegCounters since(const legs::LegCounters& before, const legs::LegCounters& after);
void add(legs::LegCounters& sum, const legs::LegCounters& part);

// Bytes of weights that one step reads. distinct[layer]: how many experts its rows chose there, each read once.
std::uint64_t step_weight_bytes(const arch::ModelInfo& info, std::size_t n_rows, bool want_logits,
                                std::span<const std::uint32_t> distinct);

// Of the bytes that a decode step of one row reads, the part that a card does: its share of the pairs, and dense
// matrices and head where the trunk multiplies there.
double part_read_by_card(const arch::ModelInfo& info, bool trunk_on_card, double pairs_on_card);

// Read rates of the memories that weights lie in, bytes a second.
struct ReadRates {
  double host = 0;
  std::optional<double> card;  // absent: there is none, or it was not measured
  // Seconds for so many bytes, `card_part` of them in the card's memory, one memory after the other. What nodes read
  // counts as the host's.
  double seconds(double bytes, double card_part) const;
};

}  // namespace terrace::app
