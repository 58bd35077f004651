#include "common/transport/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::transport {
namespace {

TEST(ParseHostPort, NamesAndNumbers_ComeBackAsWritten) {
  for (const char* address :
       {"127.0.0.1:9000", "box-1.example:1", "[::1]:65535", "[fe80::1%eth0]:9000", "localhost:0"}) {
    const auto parsed = parse_host_port(address);
    ASSERT_TRUE(parsed.ok()) << parsed.error().text();
    EXPECT_EQ(to_string(*parsed), address);
  }
  const auto ipv6 = parse_host_port("[::1]:9000");
  EXPECT_EQ(ipv6->host, "::1");
  EXPECT_EQ(ipv6->port, 9000);
}

TEST(ParseHostPort, WhatIsWrong_IsSaid) {
  const auto text = [](std::string_view address) { return parse_host_port(address).error().text(); };
  EXPECT_THAT(text("box1"), testing::HasSubstr("'box1' has no port"));
  EXPECT_THAT(text(":9000"), testing::HasSubstr("has no host"));
  EXPECT_THAT(text("box1:65536"), testing::HasSubstr("number from 0 to 65535"));
  EXPECT_THAT(text("box1:+1"), testing::HasSubstr("number from 0 to 65535"));
  EXPECT_THAT(text("::1:9000"), testing::HasSubstr("[::1]:9000"));
  EXPECT_THAT(text("[box1/x]:9000"), testing::HasSubstr("no IPv6 address in brackets"));
}

}  // namespace
}  // namespace terrace::transport
