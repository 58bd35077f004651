#include "coordinator/text/byte_alphabet.h"

#include <gtest/gtest.h>

#include "common/base/utf8.h"

namespace terrace::text {
namespace byte_alphabet_test {

TEST(ByteAlphabet, EveryByte_ComesBack) {
  std::string all, spelled;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string character = alphabet_character(static_cast<std::uint8_t>(byte));
    EXPECT_TRUE(is_utf8(character));
    spelled += character;
    all += static_cast<char>(byte);
  }
  EXPECT_EQ(alphabet_to_bytes(spelled), all);
  EXPECT_EQ(alphabet_character(' '), "Ġ");
  EXPECT_EQ(alphabet_character('\n'), "Ċ");
  EXPECT_EQ(alphabet_character(0xAD), "Ń");
}

TEST(ByteAlphabet, TextOutsideIt_IsNothing) {
  for (const char* text : {"a b", "\n", "\u00AD", "\u0144", "中", "\xC3\x28", "\xC3"})
    EXPECT_FALSE(alphabet_to_bytes(text).has_value()) << text;
}

}  // namespace byte_alphabet_test
}  // namespace terrace::text
