#include "common/base/split_list.h"

#include <gtest/gtest.h>

namespace terrace {
namespace split_list_test {

using Items = std::vector<std::string_view>;

TEST(SplitList, EachCommaEndsAnItem_AndEmptyOnesAreLeftToTheReader) {
  EXPECT_EQ(split_list("7"), Items({"7"}));
  EXPECT_EQ(split_list("7,8-9,x"), Items({"7", "8-9", "x"}));
  EXPECT_EQ(split_list("7,"), Items({"7", ""}));
  EXPECT_EQ(split_list(",,"), Items({"", "", ""}));
  EXPECT_EQ(split_list(""), Items({""}));
}

}  // namespace split_list_test
}  // namespace terrace
