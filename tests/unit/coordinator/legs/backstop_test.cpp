// Pairs that no leg will answer, computed from the coordinator's own file.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "common/threads/pool.h"
#include "tests/unit/coordinator/legs/failure_parts.h"

namespace terrace::legs {
namespace backstop_test {

using test::kExperts;
using test::Sums;

const test::TestModel& model_of_file() {
  static const test::TestModel made;
  return made;
}

TEST(Backstop, EqualsAnExecutor_ReadAheadOrNot_AnyWorkers) {
  terrace::test::Rng rng(test::kSeed);
  auto pool = Pool::create({.n_workers = 3});
  ASSERT_TRUE(pool.ok());
  Serial serial;
  for (const bool read_ahead : {false, true})
    for (Parallel* parallel : {static_cast<Parallel*>(&serial), static_cast<Parallel*>(pool->get())}) {
      test::TestBackstop backstop(model_of_file(), *parallel, read_ahead);
      for (std::uint32_t layer = 0; layer < 3; ++layer)
        for (const std::uint32_t n_rows : {1u, 7u, 600u}) {
          const test::TestBatch batch(model_of_file(), layer, n_rows, n_rows, kExperts, Priority::kPrompt, rng);
          Sums sums(n_rows);
          const Status done = backstop.backstop->run(
              {layer, batch.batch.gate_rows, batch.batch.up_rows, n_rows, batch.pairs}, sums.view(), sums.failed);
          ASSERT_TRUE(done.ok()) << done.error().text();
          EXPECT_EQ(sums, test::local_sums(model_of_file(), batch.batch)) << layer << ", " << n_rows;
        }
    }
}

// What of a suspect was brought into memory is computed where it lies; the others are read as ever.
TEST(Backstop, SlabsInMemory_AreNotRead_SameSums) {
  terrace::test::Rng rng(test::kSeed);
  Serial serial;
  for (const std::uint16_t every : {1, 3}) {
    const auto in_memory = [&](std::uint32_t layer, std::uint16_t expert) -> std::optional<kernels::SlabView> {
      if (expert % every != 0) return std::nullopt;
      return model_of_file().layers[layer].experts[expert].view();
    };
    test::TestBackstop made(model_of_file(), serial, every == 3, in_memory);
    const std::size_t at_open = made.reader->reads;
    const test::TestBatch batch(model_of_file(), 1, 9, 9, kExperts, Priority::kDecode, rng);
    std::set<std::uint16_t> to_read;
    for (const kernels::Pair& pair : batch.pairs)
      if (pair.expert % every != 0) to_read.insert(static_cast<std::uint16_t>(pair.expert));
    Sums sums(9);
    ASSERT_TRUE(
        made.backstop->run({1, batch.batch.gate_rows, batch.batch.up_rows, 9, batch.pairs}, sums.view(), sums.failed)
            .ok());
    EXPECT_EQ(sums, test::local_sums(model_of_file(), batch.batch));
    EXPECT_EQ(made.reader->reads - at_open, to_read.size());
    EXPECT_EQ(to_read.empty(), every == 1) << "or the test shows only one of the two";
  }
}

TEST(Backstop, GivenUpWhileItReads_TheNextWorkIsRight) {
  terrace::test::Rng rng(test::kSeed);
  Serial serial;
  test::TestBackstop made(model_of_file(), serial, true);
  Backstop& backstop = *made.backstop;
  for (int round = 0; round < 50; ++round) {
    const test::TestBatch batch(model_of_file(), 1, 6, 6, kExperts, Priority::kDecode, rng);
    const Backstop::Work work{1, batch.batch.gate_rows, batch.batch.up_rows, 6, batch.pairs};
    backstop.begin(work);
    backstop.end();
    EXPECT_FALSE(backstop.busy());
    Sums sums(6);
    ASSERT_TRUE(backstop.run(work, sums.view(), sums.failed).ok());
    EXPECT_EQ(sums, test::local_sums(model_of_file(), batch.batch));
  }
}

TEST(Backstop, Slots_EqualAnExecutors) {
  terrace::test::Rng rng(test::kSeed);
  Serial serial;
  test::TestBackstop made(model_of_file(), serial, true);
  const test::TestBatch batch(model_of_file(), 0, 5, 5, kExperts, Priority::kDecode, rng);
  std::vector<float> out(batch.pairs.size() * test::kWidth), expected(out.size());
  std::vector<std::uint8_t> failed(5), expected_failed(5);
  ASSERT_TRUE(
      made.backstop->run_slots({0, batch.batch.gate_rows, batch.batch.up_rows, 5, batch.pairs}, out, failed).ok());
  kernels::Executor executor(serial, model_of_file().ops);
  const auto slab_of = [&](std::uint16_t expert) { return model_of_file().layers[0].experts[expert].view(); };
  ASSERT_TRUE(executor
                  .run_slots(model_of_file().kernels[0], slab_of,
                             {batch.batch.gate_rows, batch.batch.up_rows, 5, batch.pairs}, expected, expected_failed,
                             [] { return true; })
                  .ok());
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
}

TEST(Backstop, ErrorOfAReadEndsTheWork_TheNextOneGoes) {
  terrace::test::Rng rng(test::kSeed);
  Serial serial;
  test::TestBackstop made(model_of_file(), serial, true);
  const test::TestBatch batch(model_of_file(), 1, 6, 6, kExperts, Priority::kDecode, rng);
  const Backstop::Work work{1, batch.batch.gate_rows, batch.batch.up_rows, 6, batch.pairs};
  Sums sums(6), good(6);
  made.reader->broken = true;
  const Status failed = made.backstop->run(work, sums.view(), sums.failed);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  EXPECT_FALSE(made.backstop->busy());
  made.reader->broken = false;
  ASSERT_TRUE(made.backstop->run(work, good.view(), good.failed).ok());
  EXPECT_EQ(good, test::local_sums(model_of_file(), batch.batch));
}

}  // namespace backstop_test
}  // namespace terrace::legs
