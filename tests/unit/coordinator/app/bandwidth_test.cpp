// What `terrace bench --limits` measures, in shape only: times are no assertions.
#include "coordinator/app/bandwidth.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "common/threads/pool.h"

namespace terrace::app {
namespace {

TEST(ReadBandwidth, EveryWayOnce_AndTheBestIsTheLargest) {
  const std::unique_ptr<Pool> pool = Pool::create({.n_workers = 2}).value();
  const ReadBandwidth b =
      measure_read_bandwidth(*pool, kernels::Isa::kScalar, Bytes{2 * kReadUnit + kReadUnit / 2}).value();
  EXPECT_EQ(b.threads, 2u);
  EXPECT_EQ(b.buffer.value, 2 * kReadUnit) << "whole units";
  std::set<std::tuple<bool, int, std::size_t>> ways;
  for (const ReadRate& rate : b.rates) {
    ways.emplace(rate.huge_pages, rate.n_streams, rate.prefetch_bytes);
    EXPECT_GT(rate.gb_per_second, 0);
    EXPECT_LE(rate.gb_per_second, b.best().gb_per_second);
  }
  EXPECT_EQ(ways.size(), b.rates.size());
  EXPECT_EQ(b.rates.size(), b.note.empty() ? 24u : 12u) << "without 2M pages a note says so: " << b.note;
}

TEST(ReadBandwidth, DefaultBuffer_IsWholeUnitsFrom256MTo1G) {
  EXPECT_EQ(default_read_buffer().value % kReadUnit, 0u);
  EXPECT_GE(default_read_buffer().value, std::uint64_t{256} << 20);
  EXPECT_LE(default_read_buffer().value, std::uint64_t{1} << 30);
}

TEST(ReadBandwidth, TooSmallOrMoreThanIsFree_RefusedWithNumbers) {
  Serial serial;
  const auto small = measure_read_bandwidth(serial, kernels::Isa::kScalar, Bytes{kReadUnit - 1});
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().code(), ErrorCode::kInvalidArgument);
  const auto large = measure_read_bandwidth(serial, kernels::Isa::kScalar, Bytes{1ULL << 50});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(large.error().text().find("lower --limits-buffer"), std::string::npos) << large.error().text();
}

}  // namespace
}  // namespace terrace::app
