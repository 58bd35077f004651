#include "common/base/suggestion.h"

#include <gtest/gtest.h>

#include <vector>

namespace terrace {
namespace {

TEST(Suggestion, NearestWithinAThird) {
  const std::vector<std::string> known = {"generate", "score", "status"};
  EXPECT_EQ(suggestion("generat", known), "; did you mean generate?");
  EXPECT_EQ(suggestion("statsu", known), "; did you mean status?");
  EXPECT_EQ(suggestion("bench", known), "");
}

}  // namespace
}  // namespace terrace
