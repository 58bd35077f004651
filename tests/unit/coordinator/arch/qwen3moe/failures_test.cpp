// Weights that are not finite: the error names where, only the streams that met them end, and no bit of the others
// changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace {
namespace failures_test {

using arch::StepRow;
using test::ModelUnderTest;
using test::Sequence;
using test::value_of;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kModelWidth = 256;  // of tiny-mix

arch::TrunkOptions options() {
  arch::TrunkOptions o;
  o.context = 64;
  o.max_streams = 2;
  return o;
}

std::vector<std::byte> bytes_of(float value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  return {first, first + sizeof value};
}

std::vector<std::byte> f16(std::uint16_t bits) {
  return {static_cast<std::byte>(bits & 255), static_cast<std::byte>(bits >> 8)};
}

const std::vector<std::int32_t> kPrompt = {10, 20, 30, 40};

TEST(NotFinite, EmbeddingOfOneToken_EndsOnlyTheStreamThatHasIt) {
  constexpr std::int32_t kBad = 77;
  const auto path = test::copy_with(test::tiny_model("tiny-mix"), "token_embd.weight",
                                    std::uint64_t{kBad} * kModelWidth * 2 + 10, f16(0x7e00));
  test::Backwards parallel;
  ModelUnderTest model(path, options(), parallel);
  arch::Trunk& trunk = model.trunk();
  const auto alone = Sequence(trunk).feed(kPrompt, 64, true);
  const auto before = Sequence(trunk).feed(std::vector<std::int32_t>{5}, 64, true);

  Sequence good(trunk), bad(trunk);
  std::vector<StepRow> rows = good.rows(kPrompt, true);
  for (const StepRow& row : bad.rows(std::vector<std::int32_t>{5, kBad, 6}, true)) rows.push_back(row);
  const auto result = value_of(trunk.step(rows));
  ASSERT_EQ(result.failed.size(), 2u);
  EXPECT_EQ(result.failed[0].row, 5u);
  EXPECT_EQ(result.failed[0].error.code(), ErrorCode::kNotFinite);
  EXPECT_THAT(result.failed[0].error.text(), HasSubstr("position 1 of stream 1"));
  EXPECT_THAT(result.failed[0].error.text(), HasSubstr("embedding"));
  EXPECT_EQ(result.failed[1].row, 6u);
  EXPECT_THAT(result.failed[1].error.text(), HasSubstr("position 1 failed"));
  EXPECT_TRUE(std::ranges::equal(result.logits.first(alone.size()), alone));
  EXPECT_TRUE(std::ranges::equal(result.logits.subspan(alone.size(), before.size()), before));

  EXPECT_EQ(trunk.length(good.id()), 4u);
  EXPECT_EQ(trunk.length(bad.id()), 1u);
  const auto ended = trunk.step(bad.rows(std::vector<std::int32_t>{6}));
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(ended.error().text(), HasSubstr("ended"));
  EXPECT_TRUE(trunk.step(good.rows(std::vector<std::int32_t>{6})).ok());
}

TEST(NotFinite, NormOfALayer_FailsEveryRowAndNamesTheLayer) {
  const auto path = test::copy_with(test::tiny_model("tiny-q8_0"), "blk.1.attn_norm.weight", 0, bytes_of(kNan));
  Serial serial;
  ModelUnderTest model(path, options(), serial);
  Sequence sequence(model.trunk());
  const auto result = value_of(model.trunk().step(sequence.rows(kPrompt, true)));
  ASSERT_EQ(result.failed.size(), kPrompt.size());
  EXPECT_THAT(result.failed[0].error.text(), HasSubstr("position 0"));
  EXPECT_THAT(result.failed[0].error.text(), HasSubstr("layer 1"));
  EXPECT_EQ(model.trunk().length(sequence.id()), 0u);
}

TEST(NotFinite, ValueBeyondF16_FailsAtTheCacheOfThatLayer) {
  const auto path = test::copy_with(test::tiny_model("tiny-mix"), "blk.1.attn_v.weight", 0, bytes_of(1e30f));
  Serial serial;
  ModelUnderTest model(path, options(), serial);
  Sequence sequence(model.trunk());
  const auto result = value_of(model.trunk().step(sequence.rows(kPrompt)));
  ASSERT_EQ(result.failed.size(), kPrompt.size());
  EXPECT_THAT(result.failed[0].error.text(), HasSubstr("values of layer 1"));
}

// A decode row's heads are finished by several workers; the row fails once and says the same.
TEST(NotFinite, ValueBeyondF16OfADecodeRow_FailsAtTheCacheOfThatLayer) {
  const auto path = test::copy_with(test::tiny_model("tiny-mix"), "blk.1.attn_v.weight", 0, bytes_of(1e30f));
  test::Backwards parallel;
  ModelUnderTest model(path, options(), parallel);
  Sequence first(model.trunk()), second(model.trunk());
  std::vector<StepRow> rows = first.rows(std::vector<std::int32_t>{10});
  rows.push_back(second.rows(std::vector<std::int32_t>{20}).front());
  const auto result = value_of(model.trunk().step(rows));
  ASSERT_EQ(result.failed.size(), 2u);
  for (const arch::FailedRow& failed : result.failed) EXPECT_THAT(failed.error.text(), HasSubstr("values of layer 1"));
}

// One expert of layer 0 gives infinities: rows that chose it fail, each in a stream of its own; others keep their bits.
TEST(NotFinite, OneExpert_FailsTheRowsThatChoseIt) {
  Serial serial;
  const auto path = test::tiny_model("tiny-mix");
  ModelUnderTest sound(path, options(), serial);
  std::vector<std::vector<std::uint16_t>> chosen;
  std::vector<std::vector<float>> logits;
  sound.trunk().set_trace([&](const arch::LayerTrace& t) {
    if (t.layer == 0) chosen.emplace_back(t.experts.begin(), t.experts.end());
  });
  for (std::int32_t token = 0; token < 64; ++token)
    logits.push_back(Sequence(sound.trunk()).feed(std::vector<std::int32_t>{token}, 1));

  const std::uint16_t victim = chosen[0][0];
  const auto down = value_of(sound.file().get_tensor("blk.0.ffn_down_exps.weight"));
  const auto patched = test::copy_with(path, down->name, down->bytes / down->shape[2] * victim, f16(0x7c00));
  ModelUnderTest broken(patched, options(), serial);
  std::size_t n_failed = 0;
  for (std::int32_t token = 0; token < 64; ++token) {
    Sequence sequence(broken.trunk());
    const auto result = value_of(broken.trunk().step(sequence.rows(std::vector<std::int32_t>{token}, true)));
    const bool meets_it = std::ranges::count(chosen[static_cast<std::size_t>(token)], victim) != 0;
    ASSERT_EQ(result.failed.size(), meets_it ? 1u : 0u) << "token " << token;
    n_failed += result.failed.size();
    if (meets_it) {
      EXPECT_THAT(result.failed[0].error.text(), HasSubstr("expert outputs of layer 0"));
    } else {
      EXPECT_TRUE(std::ranges::equal(result.logits, logits[static_cast<std::size_t>(token)])) << "token " << token;
    }
  }
  EXPECT_GT(n_failed, 0u);
  EXPECT_LT(n_failed, 64u);
}

}  // namespace failures_test
}  // namespace terrace
