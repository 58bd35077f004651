#include "common/transport/address.h"

#include <arpa/inet.h>
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

bool loopback(const char* text) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) return is_loopback(reinterpret_cast<const sockaddr&>(v4));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
  return is_loopback(reinterpret_cast<const sockaddr&>(v6));
}

TEST(IsLoopback, ThisMachinesOwnAlone_InOneSpelling) {
  for (const char* own : {"127.0.0.1", "127.255.255.254", "::1"}) EXPECT_TRUE(loopback(own)) << own;
  for (const char* other : {"0.0.0.0", "126.0.0.1", "128.0.0.1", "10.127.0.1", "::", "::2", "fe80::1", "::127.0.0.1",
                            "::ffff:127.0.0.1", "::ffff:10.0.0.1", "7f00::1"})
    EXPECT_FALSE(loopback(other)) << other;
  const sockaddr unix_socket{.sa_family = AF_UNIX, .sa_data = {}};
  EXPECT_FALSE(is_loopback(unix_socket));
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
