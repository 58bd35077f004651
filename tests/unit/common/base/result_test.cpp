#include "common/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace terrace {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kInvalidArgument, "an odd number");
  return value / 2;
}

Result<int> quarter_of(int value) {
  TERRACE_ASSIGN_OR_RETURN(const int half, half_of(value));
  TERRACE_ASSIGN_OR_RETURN(const int quarter, half_of(half));
  return quarter;
}

Status check_quarter(int value) {
  TERRACE_RETURN_IF_ERROR(quarter_of(value));
  return {};
}

TEST(Result, ValueOrErrorIsPassedOn) {
  EXPECT_EQ(quarter_of(12).value(), 3);
  EXPECT_EQ(*quarter_of(12), 3);
  EXPECT_TRUE(check_quarter(12).ok());
  const Status failed = check_quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failed.error().text(), "an odd number");
}

TEST(Result, LayerAddsItsObjectsNameOnce) {
  const Error error = quarter_of(6).error().in("blk.0").in("model.gguf");
  EXPECT_EQ(error.text(), "model.gguf: blk.0: an odd number");
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
}

TEST(Result, HoldsWhatCanOnlyMove) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(4));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 4);
}

TEST(Result, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code)
    EXPECT_STRNE(name(static_cast<ErrorCode>(code)), "Unknown") << code;
}

TEST(ResultDeath, ValueOfAFailedResult_EndsWithItsText) { EXPECT_DEATH(half_of(3).value(), "an odd number"); }

TEST(ResultDeath, ErrorOfAnOkResult_IsOurBug) { EXPECT_DEATH((void)Status().error(), "bug in Terrace"); }

}  // namespace
}  // namespace terrace
