// A decode step allocates nothing after warm-up: this program counts every operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/coordinator/arch/model_under_test.h"

namespace {
std::atomic<std::uint64_t> allocations;

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void* counted_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = counted(size, alignment)) return memory;
  throw std::bad_alloc();
}
constexpr std::size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
}  // namespace

void* operator new(std::size_t size) { return counted_or_throw(size, kDefault); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size, kDefault); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace terrace {
namespace {

TEST(AllocationCount, SeesEveryFormOfNew) {
  const std::uint64_t before = allocations;
  ::operator delete(::operator new(8));
  ::operator delete (::operator new (64, std::align_val_t{64}), std::align_val_t{64});
  ::operator delete(::operator new(8, std::nothrow));
  EXPECT_EQ(allocations - before, 3u);
}

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
    const std::uint64_t before = allocations;
    const auto result = model.trunk().step({&row, 1});
    const std::uint64_t n = allocations - before;
    ASSERT_TRUE(result.ok());
    const bool new_block = position % kernels::kKvBlockPositions == 0;
    EXPECT_EQ(n, new_block ? 1u : 0u) << "position " << position;
    blocks += new_block ? 1 : 0;
  }
  EXPECT_EQ(blocks, 6u);
}

}  // namespace
}  // namespace terrace
