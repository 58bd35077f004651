// `terrace score` on the demo model's two corpora against float64 (tests/data/demo/README.md: bands).
#include <gtest/gtest.h>

#include <cmath>

#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace cli_score_test {

constexpr std::size_t kChunk = 512;
constexpr std::size_t kChunks = 8;  // that float64 was computed for
// With f32 activations a chunk takes 2 s of one idle CPU, six times what a quantised one takes.
constexpr std::size_t kF32Chunks = 2;
constexpr std::chrono::seconds kSlow{280};

std::filesystem::path corpus_path(const std::string& corpus) {
  return source_dir() / "deploy" / "demo" / "corpus" / (corpus + ".txt");
}

json score(const Arguments& flags) {
  Arguments arguments = {"score", "--quiet", "-m", demo_model().string()};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Outcome run = run_program(terrace(arguments), "", kSlow);
  EXPECT_TRUE(run.ended);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return json::parse(run.out);
}

class Score : public ::testing::TestWithParam<const char*> {
 protected:
  // The first tokens of a text as --ids reads them.
  std::filesystem::path write_ids(std::size_t n, const json& ids) const {
    const json first(std::vector<json>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)));
    write_file(temp_ / "ids.json", first.dump());
    return temp_ / "ids.json";
  }
  json ids_of_corpus() const {
    const json ids = run_terrace_json({"tokenize", "--quiet", "-"}, read_file(corpus_path(GetParam())));
    EXPECT_EQ(ids.size(), expected_["file_tokens"].get<std::size_t>());
    return ids;
  }

  // The first `n` chunks: every one's NLL within `nll` of float64's, their perplexity within `ppl` of it, as a share.
  void expect_bands(const json& got, std::size_t n, double nll, double ppl) const {
    ASSERT_EQ(got["chunks"].size(), n);
    EXPECT_EQ(got["tokens"], n * kChunk);
    double sum = 0, expected_sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(got["chunks"][i]["tokens"], kChunk);
      EXPECT_NEAR(got["chunks"][i]["nll"], expected_["chunks"][i]["nll"], nll) << "chunk " << i;
      sum += got["chunks"][i]["nll"].get<double>();
      expected_sum += expected_["chunks"][i]["nll"].get<double>();
    }
    const double mean = sum / static_cast<double>(n), expected_ppl = std::exp(expected_sum / static_cast<double>(n));
    if (n == kChunks) {
      EXPECT_NEAR(expected_ppl, expected_["ppl"], 1e-6);
    }
    EXPECT_NEAR(got["nll"], mean, 1e-12);
    EXPECT_NEAR(got["ppl"], std::exp(mean), 1e-9);
    EXPECT_NEAR(got["ppl"], expected_ppl, expected_ppl * ppl);
  }

  const TempDir temp_;
  const json expected_ = read_json(data_dir() / "demo" / "cases.json")["perplexity"][GetParam()];
};

TEST_P(Score, Quantised_WithinTheBandsOfInt8Activations) {
  expect_bands(score({"--ids", write_ids(kChunks * kChunk, ids_of_corpus()).string()}), kChunks, 0.02, 0.005);
}

// f32 rounding moves a logit by about 1e-5 (6 layers, dot products of up to 512 terms, logits of about 20), either way;
// over 511 positions that averages to less. int8 activations move a chunk by up to 0.007, a router tie that breaks the
// other way by more than 1e-4: both would be seen.
TEST_P(Score, F32Activations_AreFloat64sWithinRounding) {
  const std::string ids = write_ids(kF32Chunks * kChunk, ids_of_corpus()).string();
  expect_bands(score({"--ids", ids, "--activations", "f32", "--kv", "f32"}), kF32Chunks, 1e-5, 1e-5);
}

// The whole text: its first chunks are those of its ids, and what is left over does not count.
TEST_P(Score, WholeText_BeginsWithTheChunksOfItsIds) {
  const std::string text = read_file(corpus_path(GetParam())).substr(0, 8'000);
  write_file(temp_ / "text", text);
  const json ids = run_terrace_json({"tokenize", "--quiet", "-"}, text);
  ASSERT_GE(ids.size(), 3 * kChunk);
  ASSERT_NE(ids.size() % kChunk, 0u) << "nothing is left over";
  const json whole = score({"--text", (temp_ / "text").string()});
  const json some = score({"--ids", write_ids(2 * kChunk + 100, ids).string()});
  ASSERT_EQ(some["chunks"].size(), 2u);
  EXPECT_EQ(some["chunks"][0], whole["chunks"][0]);
  EXPECT_EQ(some["chunks"][1], whole["chunks"][1]);
  EXPECT_EQ(whole["chunks"].size(), ids.size() / kChunk);
  EXPECT_EQ(whole["tokens"], whole["chunks"].size() * kChunk);
}

INSTANTIATE_TEST_SUITE_P(Corpora, Score, ::testing::Values("fairy_tales", "simple_stories"),
                         [](const auto& tested) { return std::string(tested.param); });

// Nothing of a chunk depends on how it is computed: batches, threads, instruction set.
TEST(ScoreOptions, BatchThreadsAndIsa_SameBits) {
  const TempDir temp;
  const json ids = run_terrace_json({"tokenize", "--quiet", "-"}, read_file(corpus_path("fairy_tales")).substr(0, 600));
  write_file(temp / "ids", ids.dump());
  const auto run = [&](const Arguments& flags) {
    Arguments all = {"--ids", (temp / "ids").string(), "--chunk", "64"};
    all.insert(all.end(), flags.begin(), flags.end());
    return score(all);
  };
  const json expected = run({});
  EXPECT_EQ(run({"--batch", "7"}), expected);
  EXPECT_EQ(run({"--threads", "1"}), expected);
  EXPECT_EQ(run({"--isa", "scalar"}), expected);
  EXPECT_NE(run({"--activations", "f32"}), expected);
}

TEST(ScoreOptions, Json_HasTheNamedKeys) {
  const TempDir temp;
  write_file(temp / "ids", "[9, 8, 7, 6, 5, 4, 3]");
  const Outcome run = run_terrace({"score", "--quiet", "--ids", (temp / "ids").string(), "--chunk", "3"});
  const auto got = nlohmann::ordered_json::parse(run.out);
  expect_shape(got, {{"chunks", "array"}, {"tokens", "number"}, {"nll", "number"}, {"ppl", "number"}});
  ASSERT_EQ(got["chunks"].size(), 2u) << "the last chunk is too short and left out";
  for (const auto& chunk : got["chunks"]) expect_shape(chunk, {{"tokens", "number"}, {"nll", "number"}});
  EXPECT_EQ(run.out.back(), '\n');
  EXPECT_EQ(run.err, "") << "--quiet";
}

}  // namespace cli_score_test
}  // namespace terrace::test
