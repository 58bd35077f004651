// A decode step allocates nothing after warm-up: this program counts every operator new.
#include <gtest/gtest.h>

#include <new>

#include "tests/unit/coordinator/arch/model_under_test.h"
#include "tests/unit/count_allocations.h"

namespace terrace {
namespace {

TEST(AllocationCount, SeesEveryFormOfNew) {
  const std::size_t before = test::allocations();
  ::operator delete(::operator new(8));
  ::operator delete (::operator new (64, std::align_val_t{64}), std::align_val_t{64});
  ::operator delete(::operator new(8, std::nothrow));
  EXPECT_EQ(test::allocations() - before, 3u);
}

std::uint32_t rows_before(std::uint32_t step) { return step * static_cast<std::uint32_t>(kernels::kKvBlockPositions); }

TEST(DecodeStep, AfterWarmUp_AllocatesOnlyACacheBlockEvery32Positions) {
  test::Backwards parallel;
  arch::TrunkOptions options;
  options.context = 256;
  test::ModelUnderTest model(test::tiny_model("tiny-mix"), options, parallel);
  test::Sequence sequence(model.trunk());
  sequence.feed(std::vector<std::int32_t>(20, 9), 64);  // the warm-up: the widest step of this test

  std::uint64_t blocks = 0;
  for (std::uint32_t position = 20; position < 200; ++position) {
    const arch::StepRow row = {sequence.id(), position, static_cast<std::int32_t>(position), true};
    const std::size_t before = test::allocations();
    const auto result = model.trunk().step({&row, 1});
    const std::uint64_t n = test::allocations() - before;
    ASSERT_TRUE(result.ok());
    const bool new_block = position % kernels::kKvBlockPositions == 0;
    EXPECT_EQ(n, new_block ? 1u : 0u) << "position " << position;
    blocks += new_block ? 1 : 0;
  }
  EXPECT_EQ(blocks, 6u);
}

TEST(PromptStepInHalves, AfterWarmUp_AllocatesOnlyCacheBlocks) {
  test::Backwards parallel;
  arch::TrunkOptions options;
  options.context = 256;
  options.overlap = arch::Overlap::kOn;
  test::ModelUnderTest model(test::tiny_model("tiny-mix"), options, parallel);
  const std::vector<std::int32_t> chunk(kernels::kKvBlockPositions, 9);
  {
    test::Sequence warm(model.trunk());
    warm.feed(chunk, chunk.size());
    warm.feed(chunk, chunk.size());
  }
  test::Sequence sequence(model.trunk());
  std::vector<std::vector<arch::StepRow>> steps;
  for (std::uint32_t step = 0; step < 4; ++step) {
    auto& rows = steps.emplace_back();
    for (std::uint32_t i = 0; i < chunk.size(); ++i) rows.push_back({sequence.id(), rows_before(step) + i, 9, false});
  }
  for (const auto& rows : steps) {
    const std::size_t before = test::allocations();
    ASSERT_TRUE(model.trunk().step(rows).ok());
    EXPECT_LE(test::allocations() - before, 1u) << "a block for its positions";
  }
}

}  // namespace
}  // namespace terrace
