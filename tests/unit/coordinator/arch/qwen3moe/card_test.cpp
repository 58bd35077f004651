// A trunk whose dense products are computed on a card, here one that is none: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/arch/model_under_test.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace {
namespace card_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kCardBytes = std::uint64_t{64} << 20;

// Logits of a prompt's last row and of one step more.
std::vector<std::vector<float>> logits(arch::Trunk& trunk, std::size_t chunk) {
  std::vector<std::vector<float>> all;
  const arch::StreamId stream = trunk.open_stream().value();
  std::vector<arch::StepRow> rows;
  for (std::uint32_t position = 0; position < 20; ++position) {
    const auto token = static_cast<std::int32_t>((7 * position + 3) % trunk.info().vocabulary);
    rows.push_back({stream, position, token, position >= 18});
    if (rows.size() < chunk && position < 18) continue;
    const auto stepped = trunk.step(rows);
    if (!stepped.ok()) throw std::runtime_error(stepped.error().text());
    if (position >= 18) all.emplace_back(stepped->logits.end() - trunk.info().vocabulary, stepped->logits.end());
    rows.clear();
  }
  trunk.close_stream(stream);
  return all;
}

class CardTrunk : public ::testing::TestWithParam<const char*> {};

TEST_P(CardTrunk, DenseProductsOnTheCard_SameLogits) {
  const std::filesystem::path path = test::data_dir() / "tiny" / GetParam();
  Serial serial;
  arch::TrunkOptions options;
  test::ModelUnderTest here(path, options, serial);
  const auto expected = logits(here.trunk(), 20);
  test::FakeCard card(kCardBytes);
  options.card = &card;
  options.card_memory = card.slab_memory();
  test::ModelUnderTest there(path, options, serial);
  std::uint64_t bytes = 0;
  for (const arch::DenseMatrix& matrix : there.trunk().info().dense_products) bytes += matrix.bytes();
  EXPECT_EQ(card.bytes_written, bytes) << "each matrix once";
  for (const std::size_t chunk : {20, 7, 1}) EXPECT_EQ(logits(there.trunk(), chunk), expected) << "chunks of " << chunk;
  EXPECT_GT(card.products, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, CardTrunk, ::testing::Values("tiny-q8_0.gguf", "tiny-mix.gguf"),
                         [](const auto& test) { return test.param[5] == 'q' ? "Q8_0" : "Mix"; });

TEST(CardTrunk, ACardThatFails_EndsTheStepWithItsReason) {
  Serial serial;
  test::FakeCard card(kCardBytes);
  arch::TrunkOptions options;
  options.card = &card;
  options.card_memory = card.slab_memory();
  test::ModelUnderTest model(test::data_dir() / "tiny" / "tiny-q8_0.gguf", options, serial);
  const arch::StreamId stream = model.trunk().open_stream().value();
  card.broken = true;
  const arch::StepRow row{stream, 0, 1, true};
  const auto stepped = model.trunk().step(std::span(&row, 1));
  ASSERT_FALSE(stepped.ok());
  EXPECT_THAT(stepped.error().text(), HasSubstr("fell off the bus"));
  EXPECT_EQ(model.trunk().length(stream), 0u);
}

}  // namespace card_test
}  // namespace terrace
