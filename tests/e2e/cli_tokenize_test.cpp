// `terrace tokenize` and `terrace detokenize`: bytes in, bytes out.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/e2e/support/cli.h"

namespace terrace::test {
namespace cli_tokenize_test {

Arguments command(const char* name, const Arguments& rest) {
  Arguments arguments = {name, "--quiet"};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return arguments;
}

std::string detokenized(const json& ids, const Arguments& flags = {}) {
  Arguments arguments = command("detokenize", flags);
  arguments.emplace_back("-");
  return run_terrace(arguments, 0, ids.dump()).out;
}

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

TEST(TokenizeCli, RoundTrip_IsTheSameBytes) {
  const std::string texts[] = {"",
                               "a",
                               "ends with newlines\n\n",
                               std::string("NUL\0inside and at the end\0", 26),
                               every_byte(),
                               "Café — 猫 🦊\r\n\t",
                               "half a character: \xf0\x9f\xa6"};
  for (const std::string& text : texts)
    EXPECT_EQ(detokenized(run_terrace_json(command("tokenize", {"-"}), text)), text) << json(text.size());
}

TEST(TokenizeCli, GoldenIds_WithAndWithoutSpecial) {
  const json golden = read_json(data_dir() / "tokenizer" / "demo.json");
  std::size_t special = 0, plain = 0;
  for (const json& row : golden["cases"]) {
    if (!row.contains("ids_special") && ++plain > 8) continue;  // the rest is coordinator_text_test's
    EXPECT_EQ(run_terrace_json(command("tokenize", {"--no-special", "-"}), row["text"]), row["ids"]) << row["name"];
    const json& ids = row.contains("ids_special") ? row["ids_special"] : row["ids"];
    EXPECT_EQ(run_terrace_json(command("tokenize", {"-"}), row["text"]), ids) << row["name"];
    special += row.contains("ids_special");
  }
  EXPECT_GT(special, 0u);
}

TEST(TokenizeCli, TextAsArgument_IsTheSameAsStdin) {
  const std::string text = "<|im_start|>user\nHi<|im_end|>";
  EXPECT_EQ(run_terrace_json(command("tokenize", {text})), run_terrace_json(command("tokenize", {"-"}), text));
  EXPECT_EQ(run_terrace_json(command("tokenize", {"--", "--no-special"})),
            run_terrace_json(command("tokenize", {"-"}), "--no-special"));
}

TEST(TokenizeCli, NeitherBosNorEos) {
  const auto base = (data_dir() / "gguf" / "base.gguf").string();  // has both ids
  EXPECT_EQ(run_terrace_json(command("tokenize", {"-m", base, ""})), json::array());
}

TEST(DetokenizeCli, ControlTokens_ShownOrLeftOut) {
  const json ids = run_terrace_json(command("tokenize", {"<|im_start|>user\nHi<|im_end|>\n<|endoftext|>"}));
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(detokenized(ids), "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>");
  EXPECT_EQ(detokenized(ids, {"--no-special"}), "user\nHi\n");
  EXPECT_EQ(run_terrace(command("detokenize", {ids.dump()})).out, detokenized(ids));
}

// No newline is added: the bytes are the text.
TEST(DetokenizeCli, NoIds_NoBytes) { EXPECT_EQ(detokenized(json::array()), ""); }

class VocabularyOnly : public ::testing::TestWithParam<const char*> {};

TEST_P(VocabularyOnly, TokenizesThoughItHoldsNoModel) {
  const auto dir = third_party_dir() / "golden" / "tokenizer";
  const auto packed = dir / (std::string(GetParam()) + ".gguf.xz");
  if (!std::filesystem::exists(packed)) GTEST_SKIP() << "no " << packed;
  const TempDir temp;
  const std::string file = (temp / "vocabulary.gguf").string();
  ASSERT_EQ(std::system(("xz -dc '" + packed.string() + "' > '" + file + "'").c_str()), 0);
  const json golden = read_json(dir / (std::string(GetParam()) + ".json"));
  std::size_t tried = 0;
  for (const json& row : golden["cases"]) {
    if (row.value("lossy", false) || ++tried > 4) continue;
    const json ids = run_terrace_json(command("tokenize", {"-m", file, "--no-special", "-"}), row["text"]);
    EXPECT_EQ(ids, row["ids"]) << row["name"];
    EXPECT_EQ(detokenized(ids, {"-m", file}), row["text"]) << row["name"];
  }
  EXPECT_GT(tried, 0u);

  const Outcome refused = run_terrace({"generate", "--quiet", "-m", file, "-p", "x"}, 1);
  EXPECT_NE(refused.err.find("architecture"), std::string::npos) << refused.err;
  const Outcome shown = run_terrace({"inspect", file});
  EXPECT_NE(shown.out.find("tensors      none"), std::string::npos);
  EXPECT_NE(shown.out.find("tokenizer    yes"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Published, VocabularyOnly, ::testing::Values("gpt-2", "mpt"),
                         [](const auto& tested) { return tested.param == std::string("gpt-2") ? "Gpt2" : "Mpt"; });

}  // namespace cli_tokenize_test
}  // namespace terrace::test
