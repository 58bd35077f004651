// What tests on a card share: the card itself, opened once a program, and memory on it for each test. Without a card
// every test is skipped, with the driver's reason.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/device/card.h"

namespace terrace::test {

inline constexpr std::uint64_t kCardTestBudget = std::uint64_t{3} << 30;

// The program's card, or why there is none.
inline Result<std::unique_ptr<kernels::cuda::Card>>& test_card() {
  static Result<std::unique_ptr<kernels::cuda::Card>> card = kernels::cuda::Card::open(0, kCardTestBudget);
  return card;
}

#define ASSERT_OK(expression)                                                \
  do {                                                                       \
    const auto& status_ = (expression);                                      \
    ASSERT_TRUE(status_.ok()) << #expression ": " << status_.error().text(); \
  } while (false)

// `n` values about 0.
inline std::vector<float> bell_values(std::mt19937& rng, std::size_t n, float scale) {
  std::normal_distribution<float> bell(0.0f, scale);
  std::vector<float> values(n);
  for (float& value : values) value = bell(rng);
  return values;
}

class CardTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test_card().ok()) GTEST_SKIP() << "no card: " << test_card().error().text();
    auto made = card().make_stream();
    ASSERT_OK(made);
    stream_.emplace(std::move(made).value());
    used_ = card().used_bytes();
  }
  void TearDown() override {
    if (!stream_) return;
    EXPECT_TRUE(stream_->synchronize().ok());
    card().release_to(used_);
  }

  kernels::cuda::Card& card() { return **test_card(); }
  const kernels::cuda::Stream& stream() const { return *stream_; }

  // `n` values of T on the card, every byte 0xcd: what a kernel leaves out is seen.
  template <class T>
  T* room(std::size_t n) {
    std::byte* at = card().take(n * sizeof(T), "a test").value();
    EXPECT_TRUE(stream().fill(at, 0xcd, n * sizeof(T)).ok());
    return reinterpret_cast<T*>(at);
  }
  template <class T>
  T* upload(std::span<const T> values) {
    T* at = room<T>(values.size());
    EXPECT_TRUE(stream().copy_to_card(at, values.data(), values.size_bytes()).ok());
    return at;
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    return upload(std::span<const T>(values));
  }
  // Rows of bytes behind each other.
  std::byte* upload_rows(const std::vector<std::vector<std::byte>>& rows) {
    std::vector<std::byte> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return upload(all);
  }
  template <class T>
  std::vector<T> download(const T* at, std::size_t n) {
    std::vector<T> values(n);
    EXPECT_TRUE(stream().copy_to_host(values.data(), at, n * sizeof(T)).ok());
    const Status done = stream().synchronize();
    EXPECT_TRUE(done.ok()) << done.error().text();
    return values;
  }

 private:
  std::optional<kernels::cuda::Stream> stream_;
  std::uint64_t used_ = 0;
};

// Where two lists of results first differ; two NaNs are equal.
inline std::optional<std::size_t> first_unequal(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return i;
  return std::nullopt;
}

// Lists of two lengths have no first difference to show: a product that was refused gave none.
inline testing::AssertionResult equal_floats(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure() << actual.size() << " values, reference " << expected.size();
  const auto where = first_unequal(actual, expected);
  if (!where) return testing::AssertionSuccess();
  return testing::AssertionFailure() << fmt::format("at {} of {}: {:a}, reference {:a}", *where, expected.size(),
                                                    actual[*where], expected[*where]);
}

#define EXPECT_EQUAL_FLOATS(actual, expected, what)                         \
  do {                                                                      \
    EXPECT_TRUE(::terrace::test::equal_floats(actual, expected)) << (what); \
  } while (false)

}  // namespace terrace::test
