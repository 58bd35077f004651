// A coordinator's end of TLS: whom it takes for a node, and what it says where it does not.
#include "coordinator/legs/channel.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "coordinator/legs/grpc_node_control.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tests/unit/common/security/test_authority.h"

namespace terrace::legs {
namespace {

using security::Credentials;
using security::Role;
using test::LeafTerms;
using test::TestAuthority;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;
namespace v1 = ::terrace::v1;

const ControlTimeouts kUnhurried{.call = 60s, .brief = 60s, .progress = 60s};

class DescribingNode final : public v1::Node::Service {
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeReply*) override {
    ++described;
    return grpc::Status::OK;
  }

 public:
  int described = 0;
};

class NodeChannel : public ::testing::Test {
 protected:
  // A server on `host` with such credentials; its address.
  std::string serve(const std::shared_ptr<grpc::ServerCredentials>& credentials,
                    const std::string& host = "127.0.0.1") {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(host + ":0", credentials, &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    return port == 0 ? "" : host + ":" + std::to_string(port);
  }
  static std::shared_ptr<grpc::ServerCredentials> tls(const TestAuthority& issuer, const LeafTerms& terms,
                                                      const TestAuthority* clients = nullptr) {
    const TestAuthority::Leaf leaf = issuer.issue(terms);
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = (clients == nullptr ? issuer : *clients).pem();
    options.pem_key_cert_pairs.push_back({leaf.key, leaf.certificate});
    return grpc::SslServerCredentials(options);
  }
  void TearDown() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
  }
  std::shared_ptr<Credentials> with_secret() {
    return Credentials::load(test::secret_options(dir_, 1), Role::kCoordinator, Logger::silent()).value();
  }
  std::shared_ptr<Credentials> with_certificate(const TestAuthority& authority) {
    return Credentials::load(authority.options(dir_, "coordinator", {.usage = "clientAuth"}), Role::kCoordinator,
                             Logger::silent())
        .value();
  }
  static Status describe(const std::string& address, std::shared_ptr<Credentials> credentials) {
    auto control = make_grpc_node_control(address, kUnhurried, std::move(credentials));
    if (!control.ok()) return control.error();
    const auto described = (*control)->describe();
    return described.ok() ? Status() : described.error();
  }
  static void expect_says(const Status& status, ErrorCode code, const std::string& address, const std::string& part) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(std::string(name(status.error().code())), name(code)) << status.error().text();
    EXPECT_THAT(status.error().text(), StartsWith(address + ": "));
    EXPECT_THAT(status.error().text(), HasSubstr(part));
  }

  const test::TempDir dir_;
  DescribingNode service_;
  std::unique_ptr<grpc::Server> server_;
};

constexpr const char* kQuestion = "secret, certificate or clock?";
const LeafTerms kNodeTerms{.names = "DNS:node.terrace.internal", .usage = "serverAuth"};

TEST_F(NodeChannel, NodeOfTheSameSecret_IsTaken) {
  const TestAuthority authority(test::secret_of(1));
  for (const char* host : {"127.0.0.1", "[::1]"}) {
    const std::string address = serve(tls(authority, kNodeTerms), host);
    if (address.empty()) GTEST_SKIP() << "this machine has no IPv6 loopback";
    const Status status = describe(address, with_secret());
    EXPECT_TRUE(status.ok()) << status.error().text();
    TearDown();
  }
}

TEST_F(NodeChannel, NodeOfAnotherSecret_ExpiredOrForCoordinators_IsAskedAbout) {
  const TestAuthority authority(test::secret_of(1)), other(test::secret_of(2));
  LeafTerms expired = kNodeTerms, future = kNodeTerms, coordinator = kNodeTerms;
  expired.begins = -48h;
  expired.ends = -24h;
  future.begins = 24h;
  future.ends = 48h;
  coordinator.usage = "clientAuth";
  for (const auto& credentials :
       {tls(other, kNodeTerms), tls(authority, expired), tls(authority, future), tls(authority, coordinator)}) {
    const std::string address = serve(credentials);
    expect_says(describe(address, with_secret()), ErrorCode::kRefused, address, kQuestion);
    EXPECT_EQ(service_.described, 0);
    TearDown();
  }
}

TEST_F(NodeChannel, NodeWithoutUseInItsCertificate_IsRefusedBeforeItsAnswerIsUsed) {
  const TestAuthority authority(test::secret_of(1));
  LeafTerms terms = kNodeTerms;
  terms.usage = "";
  const std::string address = serve(tls(authority, terms));
  expect_says(describe(address, with_secret()), ErrorCode::kRefused, address, "lacks serverAuth");
}

TEST_F(NodeChannel, NodeThatDoesNotTakeOurCertificate_IsAskedAbout) {
  const TestAuthority authority(test::secret_of(1)), other(test::secret_of(2));
  const std::string address = serve(tls(authority, kNodeTerms, &other));
  expect_says(describe(address, with_secret()), ErrorCode::kPeerGone, address, kQuestion);
}

TEST_F(NodeChannel, PlainNodeAndWeHaveCredentials_NothingIsSentInTheOpen) {
  const std::string address = serve(grpc::InsecureServerCredentials());
  expect_says(describe(address, with_secret()), ErrorCode::kRefused, address, "it answers without TLS");
  EXPECT_EQ(service_.described, 0);
}

TEST_F(NodeChannel, NodeWithCredentialsAndWeHaveNone_SaysWhatToGive) {
  const TestAuthority authority(test::secret_of(1));
  const std::string address = serve(tls(authority, kNodeTerms));
  expect_says(describe(address, nullptr), ErrorCode::kPeerGone, address, "--secret-file");
}

TEST_F(NodeChannel, Certificates_TheRealNameIsChecked) {
  const TestAuthority authority;
  const std::string address = serve(tls(authority, {.names = "IP:127.0.0.1", .usage = "serverAuth"}));
  EXPECT_TRUE(describe(address, with_certificate(authority)).ok());
  const std::string by_name = "localhost" + address.substr(address.rfind(':'));
  expect_says(describe(by_name, with_certificate(authority)), ErrorCode::kRefused, by_name, "not for this name");
  TearDown();
  // The name in every leaf of a secret says nothing here.
  const std::string elsewhere = serve(tls(authority, kNodeTerms));
  expect_says(describe(elsewhere, with_certificate(authority)), ErrorCode::kRefused, elsewhere, "not for this name");
}

TEST_F(NodeChannel, BeyondLoopback_NeedsCredentialsAndThenNoMore) {
  for (const char* address : {"192.0.2.1:9000", "[2001:db8::1]:9000"}) {
    const auto plain = make_grpc_node_control(address, kUnhurried);
    ASSERT_FALSE(plain.ok());
    EXPECT_THAT(plain.error().text(), HasSubstr("give --secret-file"));
    EXPECT_TRUE(make_grpc_node_control(address, kUnhurried, with_secret()).ok());
  }
}

}  // namespace
}  // namespace terrace::legs
