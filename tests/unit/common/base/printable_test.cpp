#include "common/base/printable.h"

#include <gtest/gtest.h>

namespace terrace {
namespace printable_test {

TEST(Printable, AnyByteButPrintableAscii_IsAQuestionMark) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every += static_cast<char>(byte);
  const std::string shown = printable(every, 256);
  ASSERT_EQ(shown.size(), 256u);
  for (std::size_t byte = 0; byte < 256; ++byte)
    EXPECT_EQ(shown[byte], byte >= 0x20 && byte <= 0x7e ? static_cast<char>(byte) : '?') << byte;
}

TEST(Printable, IsCut) {
  EXPECT_EQ(printable("box1\nbox2", 6), "box1?b");
  EXPECT_EQ(printable("box1", 6), "box1");
  EXPECT_EQ(printable("", 6), "");
}

}  // namespace printable_test
}  // namespace terrace
