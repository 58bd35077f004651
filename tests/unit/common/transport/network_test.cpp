#include "common/transport/ucx/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::transport {
namespace {

using testing::HasSubstr;

bool contains(const std::string& cidr, const std::string& address) {
  return Network::parse(cidr).value().contains(address);
}

TEST(Network, ContainsExactlyItsAddresses) {
  EXPECT_TRUE(contains("192.168.7.0/24", "192.168.7.0"));
  EXPECT_TRUE(contains("192.168.7.0/24", "192.168.7.255"));
  EXPECT_FALSE(contains("192.168.7.0/24", "192.168.6.255"));
  EXPECT_FALSE(contains("192.168.7.0/24", "192.168.8.0"));
  EXPECT_TRUE(contains("10.0.0.0/9", "10.127.255.255"));
  EXPECT_FALSE(contains("10.0.0.0/9", "10.128.0.0"));
  EXPECT_TRUE(contains("10.1.2.3/32", "10.1.2.3"));
  EXPECT_FALSE(contains("10.1.2.3/32", "10.1.2.2"));
  EXPECT_TRUE(contains("0.0.0.0/0", "203.0.113.9"));
  EXPECT_TRUE(contains("fd00:7::/64", "fd00:7::ffff:1"));
  EXPECT_FALSE(contains("fd00:7::/64", "fd00:7:0:1::1"));
}

TEST(Network, OtherFamilyAndWhatIsNoAddress_AreOutside) {
  EXPECT_FALSE(contains("0.0.0.0/0", "::1"));
  EXPECT_FALSE(contains("::/0", "10.0.0.1"));
  EXPECT_FALSE(contains("0.0.0.0/0", "box1"));
  EXPECT_FALSE(contains("0.0.0.0/0", ""));
  EXPECT_TRUE(contains("10.0.0.0/8", "::ffff:10.1.1.1")) << "an IPv4 address in IPv6 clothes";
}

TEST(Network, WrongForms_AreRefusedByName) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "the length of its prefix is missing"},
      {"10.0.0.0", "the length of its prefix is missing"},
      {"box1/8", "is no IP address"},
      {"10.0.0/8", "is no IP address"},
      {"10.0.0.0/33", "no number from 0 to 32"},
      {"10.0.0.0/-1", "no number from 0 to 32"},
      {"10.0.0.0/8x", "no number from 0 to 32"},
      {"fd00::/129", "no number from 0 to 128"},
      {"10.0.0.1/8", "bits beyond its prefix"},
      {"fd00::1/64", "bits beyond its prefix"},
  };
  for (const auto& [text, why] : wrong) {
    const auto network = Network::parse(text);
    ASSERT_FALSE(network.ok()) << text;
    EXPECT_EQ(network.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(network.error().text(), HasSubstr(why)) << text;
  }
}

TEST(UcxPorts, RangeOrRefusalByName) {
  const auto ports = parse_ucx_ports("9200-9215");
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(ports->first, 9200);
  EXPECT_EQ(ports->last, 9215);
  for (const char* wrong :
       {"", "9200", "9200-", "-9200", "9200-9214", "9300-9200", "80-200", "9200-65536", "9200-9300x"})
    EXPECT_FALSE(parse_ucx_ports(wrong).ok()) << wrong;
}

TEST(Interface, Loopback_IsFoundAndAnUnknownOneIsNamed) {
  const auto loopback = find_interface("lo");
  ASSERT_TRUE(loopback.ok());
  EXPECT_TRUE(loopback->loopback);
  EXPECT_THAT(loopback->addresses, testing::Contains("127.0.0.1"));
  const auto none = find_interface("none0");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().text(), HasSubstr("\"none0\", but lo"));
}

}  // namespace
}  // namespace terrace::transport
