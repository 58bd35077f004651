#include "common/base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace terrace {
namespace {

TEST(AlignedBuffer, BeginsAtACacheLine) {
  for (const std::size_t bytes : {1u, 63u, 64u, 65u, 100'000u}) {
    auto buffer = AlignedBuffer::allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % AlignedBuffer::kAlignment, 0u);
    buffer->touch();
    for (const std::byte b : buffer->bytes()) ASSERT_EQ(b, std::byte{0});
  }
}

TEST(AlignedBuffer, MovingLeavesNothingBehind) {
  AlignedBuffer a = AlignedBuffer::allocate(100).value();
  const std::byte* data = a.data();
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.size(), 0u);  // NOLINT(bugprone-use-after-move): what is left is part of the promise
  EXPECT_EQ(a.data(), nullptr);
}

TEST(AlignedBuffer, NothingIsAValidSize) {
  auto buffer = AlignedBuffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  buffer->touch();
  EXPECT_EQ(buffer->size(), 0u);
}

TEST(AlignedBuffer, TooMuchIsAnErrorWithTheSize) {
  for (const std::size_t bytes :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 2 - 1}) {
    const auto buffer = AlignedBuffer::allocate(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code(), ErrorCode::kOutOfMemory);
  }
}

}  // namespace
}  // namespace terrace
