#include "tests/e2e/support/gate_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "coordinator/app/engine.h"
#include "coordinator/app/generation.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

constexpr std::size_t kCorpusBytes = 8192;  // more than any prompt of the gate

}  // namespace

std::uint64_t GateRun::pairs() const {
  std::uint64_t sum = 0;
  for (const LegWork& leg : legs) sum += leg.pairs;
  return sum;
}

std::vector<LegWork> work_of(const legs::LegBoard& board) {
  std::vector<LegWork> work;
  for (const legs::LegReport& leg : board.report())
    work.push_back({leg.name, leg.experts, leg.counters.pairs, leg.counters.weight_bytes_sent,
                    leg.counters.hedged_pairs, leg.state, leg.reason});
  return work;
}

app::ModelOptions gate_options(const std::filesystem::path& model) {
  app::ModelOptions options;
  options.model = model;
  options.quiet = true;
  return options;
}

GateRun gate_run(const app::ModelOptions& options, const std::vector<std::int32_t>& prompt, std::uint64_t max_tokens) {
  const auto engine = must(app::Engine::open(options, Environment({{"XDG_CACHE_HOME", cache_dir().string()}})));
  return gate_run(*engine, app::prompt_rows(options), prompt, max_tokens);
}

GateRun gate_run(app::Engine& engine, std::uint32_t batch, const std::vector<std::int32_t>& prompt,
                 std::uint64_t max_tokens) {
  app::GenerationRequest request;
  request.prompt = prompt;
  request.max_tokens = max_tokens;
  request.batch = batch;
  request.sampling.temperature = 0;
  request.hash_logits = request.hash_sums = true;
  request.text_at_end = true;
  const app::Generation made = must(app::generate(engine, request, [](std::string_view) { return Status(); }));

  GateRun run;
  run.tokens = made.tokens;
  run.logits_xxh3 = made.logits_xxh3;
  run.sums_xxh3 = made.sums_xxh3;
  run.legs = work_of(engine.board());
  const arch::ModelInfo& model = engine.trunk().info();
  const std::uint64_t rows = prompt.size() + made.tokens.size() - 1;  // the last token is not computed with
  run.expected_pairs = rows * model.top_k * model.n_layers;
  return run;
}

std::optional<std::string> difference(const GateRun& expected, const GateRun& got) {
  const std::size_t steps = std::min(expected.logits_xxh3.size(), got.logits_xxh3.size());
  for (std::size_t step = 0; step < steps; ++step)
    if (expected.logits_xxh3[step] != got.logits_xxh3[step] || expected.tokens[step] != got.tokens[step])
      return fmt::format("step {}: logits {:016x} and token {}, expected {:016x} and {}", step, got.logits_xxh3[step],
                         got.tokens[step], expected.logits_xxh3[step], expected.tokens[step]);
  const std::size_t summed = std::min(expected.sums_xxh3.size(), got.sums_xxh3.size());
  for (std::size_t step = 0; step < summed; ++step)
    if (expected.sums_xxh3[step] != got.sums_xxh3[step])
      return fmt::format("step {}: the experts' sums {:016x}, expected {:016x}", step, got.sums_xxh3[step],
                         expected.sums_xxh3[step]);
  if (expected.tokens.size() != got.tokens.size())
    return fmt::format("{} tokens, expected {}", got.tokens.size(), expected.tokens.size());
  return std::nullopt;
}

std::vector<std::int32_t> corpus_prompt(std::size_t n) {
  const std::string text =
      read_file(source_dir() / "deploy" / "demo" / "corpus" / "fairy_tales.txt").substr(0, kCorpusBytes);
  const gguf::File file = must(gguf::File::open(demo_model()));
  const text::Tokenizer tokenizer = must(app::open_tokenizer(file, true));
  std::vector<std::int32_t> ids = must(tokenizer.encode(text, {}));
  if (ids.size() < n) throw std::runtime_error("the corpus is too short for this prompt");
  ids.resize(n);
  return ids;
}

}  // namespace terrace::test
