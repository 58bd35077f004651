#include "common/security/credentials.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "common/security/peer_certificate.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::security {
namespace {

using std::chrono::hours;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using TimePoint = std::chrono::system_clock::time_point;

class CredentialsTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<Credentials>> load(const SecurityOptions& options, Role role) {
    const Logger log = Logger::to_function(
        LogLevel::kInfo, [this](LogLevel, std::string_view text) { said_ += std::string(text) + "\n"; });
    return Credentials::load(options, role, log, [this] { return now_; });
  }
  std::string error(const SecurityOptions& options, Role role) {
    const auto loaded = load(options, role);
    EXPECT_FALSE(loaded.ok());
    return loaded.ok() ? "" : loaded.error().text();
  }

  const test::TempDir dir_;
  TimePoint now_ = std::chrono::system_clock::now();
  std::string said_;
};

TEST_F(CredentialsTest, NoneGiven_AreNone) {
  EXPECT_EQ(*load({}, Role::kNode), nullptr);
  EXPECT_EQ(link_security({}), LinkSecurity::kOpen);
}

TEST_F(CredentialsTest, OfASecret_LeafIsOfTheRoleAndSealsUnlessTold) {
  SecurityOptions options = test::secret_options(dir_, 1);
  const auto node = load(options, Role::kNode).value();
  options.plain_data = true;
  const auto coordinator = load(options, Role::kCoordinator).value();
  EXPECT_EQ(node->link_security(), LinkSecurity::kSealed);
  EXPECT_EQ(coordinator->link_security(), LinkSecurity::kAuthenticated);
  EXPECT_TRUE(node->by_secret());
  EXPECT_TRUE(read_certificate(node->current()->certificates)->for_server);
  EXPECT_TRUE(read_certificate(coordinator->current()->certificates)->for_client);
  // Each takes the other, and not its own kind.
  EXPECT_TRUE(node->check_peer(coordinator->current()->certificates).ok());
  EXPECT_TRUE(coordinator->check_peer(node->current()->certificates).ok());
  EXPECT_THAT(node->check_peer(node->current()->certificates).error().text(), HasSubstr("lacks clientAuth"));
  EXPECT_THAT(coordinator->check_peer(coordinator->current()->certificates).error().text(),
              HasSubstr("lacks serverAuth"));
}

TEST_F(CredentialsTest, OfASecret_PeerNeedsUseAndName) {
  const auto node = load(test::secret_options(dir_, 1), Role::kNode).value();
  const test::TestAuthority authority(test::secret_of(1));
  const auto check = [&](const test::LeafTerms& terms) { return node->check_peer(authority.issue(terms).certificate); };
  EXPECT_TRUE(check({.names = "DNS:node.terrace.internal"}).ok());
  EXPECT_THAT(check({.names = "DNS:node.terrace.internal", .usage = ""}).error().text(), HasSubstr("lacks clientAuth"));
  EXPECT_THAT(check({.names = "DNS:other.internal"}).error().text(), HasSubstr("node.terrace.internal"));
  EXPECT_THAT(check({.names = ""}).error().text(), HasSubstr("node.terrace.internal"));
}

TEST_F(CredentialsTest, OfASecret_LeafIsRenewedForTheSameKey) {
  const auto node = load(test::secret_options(dir_, 1), Role::kNode).value();
  const TlsIdentityRef first = node->current();
  EXPECT_EQ(node->current(), first);
  now_ += hours(29 * 24);
  EXPECT_EQ(node->current(), first);
  now_ += hours(2 * 24);
  const TlsIdentityRef second = node->current();
  EXPECT_NE(second, first);
  EXPECT_EQ(read_certificate(second->certificates)->key, read_certificate(first->certificates)->key);
  // A process that runs for three years never shows a leaf that is not valid.
  for (int month = 0; month < 36; ++month) {
    now_ += hours(30 * 24);
    const TlsIdentityRef each = node->current();
    EXPECT_TRUE(check_chain(each->key, each->certificates, each->authorities, now_).ok()) << month;
  }
  now_ -= hours(400 * 24);  // a clock that was wrong and is set right
  const TlsIdentityRef last = node->current();
  EXPECT_TRUE(check_chain(last->key, last->certificates, last->authorities, now_).ok());
}

TEST_F(CredentialsTest, IdentityOfAPeer_IsItsKeysAndChangesWithAnyOtherStart) {
  const SecurityOptions options = test::secret_options(dir_, 1);
  const auto node = load(options, Role::kNode).value();
  const auto one = load(options, Role::kCoordinator).value(), two = load(options, Role::kCoordinator).value();
  const auto identity = [&](Credentials& of) { return node->check_peer(of.current()->certificates).value(); };
  const std::string before = identity(*one);
  EXPECT_NE(before, identity(*two));
  now_ += hours(60 * 24);
  EXPECT_EQ(identity(*one), before);
}

TEST_F(CredentialsTest, OptionsThatDoNotGoTogether_AreNamed) {
  SecurityOptions both = test::secret_options(dir_, 1);
  both.certificate = "a";
  EXPECT_THAT(error(both, Role::kNode), HasSubstr("two ways"));
  SecurityOptions part;
  part.certificate = "a";
  EXPECT_THAT(error(part, Role::kNode), StartsWith("--key is missing"));
  part.key = "b";
  EXPECT_THAT(error(part, Role::kNode), StartsWith("--ca is missing"));
  part.certificate.clear();
  EXPECT_THAT(error(part, Role::kNode), StartsWith("--cert is missing"));
  SecurityOptions plain;
  plain.plain_data = true;
  EXPECT_THAT(error(plain, Role::kNode), StartsWith("--plain-data without credentials"));
}

TEST_F(CredentialsTest, Files_AreCheckedAndNamed) {
  const test::TestAuthority authority, other;
  const SecurityOptions good = authority.options(dir_, "good", {});
  ASSERT_TRUE(load(good, Role::kNode).ok());
  EXPECT_FALSE((*load(good, Role::kNode))->by_secret());

  SecurityOptions open_key = authority.options(dir_, "open", {});
  ASSERT_EQ(::chmod(open_key.key.c_str(), 0644), 0);
  EXPECT_THAT(error(open_key, Role::kNode), StartsWith(open_key.key.string() + ": others may read"));

  SecurityOptions missing = good;
  missing.authority = dir_ / "nowhere";
  EXPECT_THAT(error(missing, Role::kNode), StartsWith((dir_ / "nowhere").string()));

  SecurityOptions mixed = good;
  mixed.key = authority.options(dir_, "mixed", {}).key;
  EXPECT_THAT(error(mixed, Role::kNode), HasSubstr("the key is not that of the certificate"));
  mixed = good;
  mixed.authority = other.options(dir_, "others", {}).authority;
  EXPECT_THAT(error(mixed, Role::kNode), HasSubstr("vouches for"));

  EXPECT_THAT(error(authority.options(dir_, "client", {.usage = "clientAuth"}), Role::kNode),
              HasSubstr("client.crt: is no certificate for a node: its extended key usage lacks serverAuth"));
  EXPECT_THAT(error(authority.options(dir_, "server", {.usage = "serverAuth"}), Role::kCoordinator),
              HasSubstr("lacks clientAuth"));
  EXPECT_THAT(error(authority.options(dir_, "old", {.begins = hours(-48), .ends = hours(-24)}), Role::kNode),
              HasSubstr("expired"));
  EXPECT_THAT(error(authority.options(dir_, "future", {.begins = hours(24), .ends = hours(48)}), Role::kNode),
              HasSubstr("not yet valid"));
}

TEST_F(CredentialsTest, ChangedFiles_AreReadAgainAndBadOnesAreNot) {
  const test::TestAuthority authority;
  const SecurityOptions options = authority.options(dir_, "node", {});
  const auto node = load(options, Role::kNode).value();
  const TlsIdentityRef first = node->current();
  EXPECT_EQ(node->current(), first);
  test::write_file(options.certificate, "cut off");
  EXPECT_EQ(node->current(), first);
  EXPECT_THAT(said_, HasSubstr("going on with the certificate read before"));
  said_.clear();
  EXPECT_EQ(node->current(), first);
  EXPECT_EQ(said_, "") << "said once for each change";
  (void)authority.options(dir_, "node", {});  // the same files anew, another leaf
  const TlsIdentityRef second = node->current();
  EXPECT_NE(second, first);
  EXPECT_NE(second->certificates, first->certificates);
}

TEST_F(CredentialsTest, NothingSaid_HasAKeyInIt) {
  const SecurityOptions options = test::secret_options(dir_, 0x5a);
  const auto node = load(options, Role::kNode).value();
  now_ += hours(60 * 24);
  (void)node->current();
  EXPECT_EQ(said_.find("5a5a5a5a"), std::string::npos);
}

}  // namespace
}  // namespace terrace::security
