#include "common/security/secret.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/security/private_file.h"
#include "common/security/sha256.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

class SecretFile : public ::testing::Test {
 protected:
  Result<Secret> read(const std::string& text, mode_t mode = 0600) {
    test::write_file(path_, text);
    EXPECT_EQ(::chmod(path_.c_str(), mode), 0);
    return Secret::read(path_);
  }
  const test::TempDir dir_;
  const std::filesystem::path path_ = dir_ / "secret";
};

TEST_F(SecretFile, OneLineOfHexadecimalDigits_IsRead) {
  for (const std::string& text :
       {kDigits + "\n", kDigits, kDigits + "\r\n", "000102030405060708090A0B0C0D0E0F" + kDigits.substr(32)}) {
    const auto secret = read(text);
    ASSERT_TRUE(secret.ok()) << secret.error().text();
    EXPECT_EQ(to_hex(secret->bytes()), kDigits);
    EXPECT_EQ(secret->line(), kDigits);
  }
}

TEST_F(SecretFile, WrongText_NamesFileAndLineAndNotTheText) {
  const std::pair<std::string, const char*> cases[] = {
      {"", ":1: the line is empty"},
      {"\n" + kDigits + "\n", ":1: the line is empty"},
      {kDigits.substr(1) + "\n", ":1: the line has 63 characters"},
      {kDigits + "0\n", ":1: the line has 65 characters"},
      {"x" + kDigits.substr(1) + "\n", ":1: a character is no hexadecimal digit"},
      {kDigits + "\n" + kDigits + "\n", ":2: something follows"},
      {kDigits + "\n\n", ":2: something follows"},
  };
  for (const auto& [text, says] : cases) {
    const auto secret = read(text);
    ASSERT_FALSE(secret.ok()) << text;
    EXPECT_EQ(secret.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(secret.error().text(), StartsWith(path_.string() + says));
    EXPECT_THAT(secret.error().text(), Not(HasSubstr("0506070809")));
  }
  EXPECT_THAT(read(std::string(5000, '0')).error().text(), HasSubstr("longer than 4096 bytes"));
}

TEST_F(SecretFile, OthersMayReadOrWriteIt_IsRefusedByName) {
  for (const mode_t mode : {0644, 0640, 0604, 0660, 0620, 0602}) {
    const auto secret = read(kDigits + "\n", mode);
    ASSERT_FALSE(secret.ok()) << mode;
    EXPECT_EQ(secret.error().code(), ErrorCode::kRefused);
    EXPECT_THAT(secret.error().text(), StartsWith(path_.string() + ": others may read or write this file"));
    EXPECT_THAT(secret.error().text(), HasSubstr("chmod 600 " + path_.string()));
  }
  for (const mode_t mode : {0400, 0600, 0700, 0500}) EXPECT_TRUE(read(kDigits, mode).ok()) << mode;
}

// As systemd's LoadCredential= and Kubernetes hand a secret to a service of another user: root's, read by a group.
TEST_F(SecretFile, RootsFileThatTheGroupMayRead_IsTakenByAnotherUserAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of root's";
  EXPECT_FALSE(read(kDigits, 0440).ok());
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chown(path_.c_str(), 0, 65532), 0);
  const gid_t own_group = ::getegid();
  ASSERT_EQ(::setegid(65532), 0);
  ASSERT_EQ(::seteuid(65532), 0);
  const auto group_read = Secret::read(path_);
  EXPECT_EQ(::seteuid(0), 0);
  EXPECT_EQ(::chmod(path_.c_str(), 0460), 0);
  EXPECT_EQ(::seteuid(65532), 0);
  const auto group_write = Secret::read(path_);
  EXPECT_EQ(::seteuid(0), 0);
  EXPECT_EQ(::setegid(own_group), 0);
  EXPECT_TRUE(group_read.ok()) << group_read.error().text();
  EXPECT_FALSE(group_write.ok());
}

TEST_F(SecretFile, WhatIsNoRegularFile_IsNamed) {
  EXPECT_EQ(Secret::read(dir_ / "nowhere").error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(Secret::read(dir_ / "nowhere").error().text(), StartsWith((dir_ / "nowhere").string()));
  EXPECT_THAT(Secret::read(dir_.path()).error().text(), HasSubstr("is no regular file"));
  ASSERT_EQ(::mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(Secret::read(dir_ / "fifo").error().text(), HasSubstr("is no regular file"));
}

TEST(SecretMake, TwoAreNotEqualAndBothCanBeRead) {
  const test::TempDir dir;
  const auto one = Secret::make(), two = Secret::make();
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->line(), two->line());
  test::write_private_file(dir / "one", one->line() + "\n");
  EXPECT_EQ(Secret::read(dir / "one")->line(), one->line());
}

}  // namespace
}  // namespace terrace::security
