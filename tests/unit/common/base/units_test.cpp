#include "common/base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace terrace {
namespace {

TEST(Size, IsReadInPowersOf1024) {
  EXPECT_EQ(parse_size("0").value().value, 0u);
  EXPECT_EQ(parse_size("4096").value().value, 4096u);
  EXPECT_EQ(parse_size("64K").value().value, 64u << 10);
  EXPECT_EQ(parse_size("512m").value().value, 512u << 20);
  EXPECT_EQ(parse_size("1.5G").value().value, 1536ull << 20);
  EXPECT_EQ(parse_size("24GiB").value().value, 24ull << 30);
  EXPECT_EQ(parse_size("2TB").value().value, 2ull << 40);
  EXPECT_EQ(parse_size("18446744073709551615").value().value, std::numeric_limits<std::uint64_t>::max());
}

TEST(Size, AnythingElseIsRefusedByName) {
  for (const char* text : {"", "G", "-1G", "+1", "1.", ".5G", "1.5.5", "24X", "24 G", "24G ", "0x10", "1e3", "nan",
                           "iB", "1GG", "18446744073709551616", "16777216T", "1.1234567G"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(size.error().text().find(std::string("'") + text + "'"), std::string::npos) << size.error().text();
  }
}

TEST(Size, IsWrittenForPeopleAndExactly) {
  EXPECT_EQ(format_size(0), "0B");
  EXPECT_EQ(format_size(1023), "1023B");
  EXPECT_EQ(format_size(512u << 20), "512M");
  EXPECT_EQ(format_size((61ull << 30) + (410ull << 20)), "61.4G");
  for (const std::uint64_t bytes : {0ull, 1ull, 1000ull, 1536ull << 20, 24ull << 30, (1ull << 40) + 1})
    EXPECT_EQ(parse_size(format_size_exact(Bytes{bytes})).value().value, bytes);
}

TEST(Duration, IsReadWithItsUnit) {
  using namespace std::chrono_literals;
  EXPECT_EQ(parse_duration("0").value(), 0ns);
  EXPECT_EQ(parse_duration("20ms").value(), 20ms);
  EXPECT_EQ(parse_duration("1.5s").value(), 1500ms);
  EXPECT_EQ(parse_duration("250us").value(), 250us);
  EXPECT_EQ(parse_duration("7ns").value(), 7ns);
  EXPECT_EQ(parse_duration("2m").value(), 2min);
  EXPECT_EQ(parse_duration("1h").value(), 1h);
}

TEST(Duration, AnythingElseIsRefusedByName) {
  for (const char* text : {"", "20", "ms", "-1s", "1 s", "1sec", "9223372036854775808ns", "2562048h", "nan"}) {
    const auto time = parse_duration(text);
    ASSERT_FALSE(time.ok()) << text;
    EXPECT_NE(time.error().text().find(std::string("'") + text + "'"), std::string::npos);
  }
}

TEST(Duration, IsWrittenForPeopleAndExactly) {
  using namespace std::chrono_literals;
  EXPECT_EQ(format_duration(20ms), "20ms");
  EXPECT_EQ(format_duration(1500ms), "1.5s");
  EXPECT_EQ(format_duration(-3us), "-3us");
  EXPECT_EQ(format_duration(0ns), "0ns");
  for (const std::chrono::nanoseconds time : {0ns, 1ns, 1500000ns, 3600000000000ns, 90000000000ns})
    EXPECT_EQ(parse_duration(format_duration_exact(time)).value(), time);
}

}  // namespace
}  // namespace terrace
