// Who gets in on the control port: real gRPC and TLS in this process, on loopback.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "common/security/peer_certificate.h"
#include "common/transport/address.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tests/unit/common/security/test_authority.h"
#include "tests/unit/tier_node/support/node_parts.h"
#include "tests/unit/tier_node/support/open_request.h"
#include "tier_node/service/control_server.h"

namespace terrace::node {
namespace {

using security::Credentials;
using security::Role;
using security::SecurityOptions;
using terrace::test::LeafTerms;
using terrace::test::TestAuthority;
using test::must;
using test::NodeParts;
using test::TinyModel;
using ::testing::HasSubstr;
namespace v1 = ::terrace::v1;
using StubRef = std::unique_ptr<v1::Node::Stub>;
using WallTime = std::chrono::system_clock::time_point;

constexpr auto kPatience = std::chrono::seconds(60);

class ControlSecurity : public ::testing::Test {
 protected:
  void start(const SecurityOptions& options) {
    node_ = std::make_unique<NodeParts>(model_, test::NodeSettings{});
    ControlOptions control;
    control.credentials = credentials(options, Role::kNode);
    control.log = Logger::to_function(LogLevel::kDebug, [this](LogLevel, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(text);
    });
    control_ = must(ControlServer::start("127.0.0.1:0", node_->sessions(), node_->loader(), {}, control));
  }
  void TearDown() override {
    control_.reset();
    if (node_) node_->sessions().end_all(Error(ErrorCode::kPeerGone, "the test is over"));
  }

  std::shared_ptr<Credentials> credentials(const SecurityOptions& options, Role role,
                                           std::chrono::hours clock_wrong_by = {}) {
    return must(Credentials::load(options, role, Logger::silent(), [this, clock_wrong_by] {
      return std::chrono::system_clock::now() + clock_wrong_by + std::chrono::hours(role_clock_.load());
    }));
  }
  std::shared_ptr<grpc::Channel> channel(const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(security::kLinkName);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(control_->address(), credentials, arguments);
  }
  std::shared_ptr<grpc::Channel> channel(Credentials& of) const {
    const security::TlsIdentityRef identity = of.current();
    return channel(grpc::SslCredentials({identity->authorities, identity->key, identity->certificates}));
  }
  StubRef stub(const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    return v1::Node::NewStub(channel(credentials));
  }
  StubRef stub(Credentials& of) const { return v1::Node::NewStub(channel(of)); }
  StubRef stub(const TestAuthority& authority, const LeafTerms& terms) const {
    const TestAuthority::Leaf leaf = authority.issue(terms);
    return stub(grpc::SslCredentials({authority.pem(), leaf.key, leaf.certificate}));
  }

  static grpc::Status describe(v1::Node::Stub& stub) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::DescribeReply reply;
    return stub.Describe(&context, v1::DescribeRequest(), &reply);
  }
  // Refused before any call was looked at.
  void expect_shut_out(const StubRef& stub) {
    EXPECT_EQ(describe(*stub).error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_TRUE(node_->sessions().all().empty());
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  const terrace::test::TempDir dir_;
  TinyModel model_;
  std::unique_ptr<NodeParts> node_;
  std::unique_ptr<ControlServer> control_;
  std::atomic<int> role_clock_ = 0;  // hours that everybody's clock is ahead
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(ControlSecurity, SameSecret_IsAnswered) {
  start(terrace::test::secret_options(dir_, 1));
  const auto coordinator = credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator);
  const grpc::Status status = describe(*stub(*coordinator));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ControlSecurity, OtherSecretNoneOrPlainText_AreShutOutInTheHandshake) {
  start(terrace::test::secret_options(dir_, 1));
  const auto stranger = credentials(terrace::test::secret_options(dir_, 2), Role::kCoordinator);
  expect_shut_out(stub(*stranger));
  // The node's authority is public knowledge; a certificate of it is not.
  const TestAuthority authority(terrace::test::secret_of(1));
  expect_shut_out(stub(grpc::SslCredentials({authority.pem(), "", ""})));
  expect_shut_out(stub(grpc::InsecureChannelCredentials()));
  const TestAuthority other;
  const TestAuthority::Leaf leaf = other.issue({.names = "DNS:node.terrace.internal"});
  expect_shut_out(stub(grpc::SslCredentials({authority.pem(), leaf.key, leaf.certificate})));
}

TEST_F(ControlSecurity, ExpiredAndFutureLeaves_AreShutOut) {
  start(terrace::test::secret_options(dir_, 1));
  const auto late = credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator, std::chrono::hours(48));
  const auto old =
      credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator, std::chrono::hours(-400 * 24));
  expect_shut_out(stub(*late));
  expect_shut_out(stub(*old));
  const auto a_little_late =
      credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator, std::chrono::hours(23));
  EXPECT_TRUE(describe(*stub(*a_little_late)).ok());
}

TEST_F(ControlSecurity, NodesLeafAsAClients_IsShutOut) {
  start(terrace::test::secret_options(dir_, 1));
  const auto node = credentials(terrace::test::secret_options(dir_, 1), Role::kNode);
  expect_shut_out(stub(*node));
}

// OpenSSL takes a leaf that says nothing of its use for any; we do not.
TEST_F(ControlSecurity, LeafWithoutUseOrOfAnotherName_EveryServiceRefuses) {
  start(terrace::test::secret_options(dir_, 1));
  const TestAuthority authority(terrace::test::secret_of(1));
  const std::string good_name = "DNS:node.terrace.internal";
  const auto status_of = [&](const LeafTerms& terms) { return describe(*stub(authority, terms)); };
  EXPECT_TRUE(status_of({.names = good_name, .usage = "clientAuth"}).ok());
  for (const LeafTerms& terms :
       {LeafTerms{.names = good_name, .usage = ""}, LeafTerms{.names = "DNS:box.example"}, LeafTerms{.names = ""}}) {
    const grpc::Status refused = status_of(terms);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED) << refused.error_message();
    EXPECT_THAT(refused.error_message(), HasSubstr("certificate is not"));
  }
  // Health and reflection are services like any other.
  const TestAuthority::Leaf leaf = authority.issue({.names = good_name, .usage = ""});
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(security::kLinkName);
  const auto channel = grpc::CreateCustomChannel(
      control_->address(), grpc::SslCredentials({authority.pem(), leaf.key, leaf.certificate}), arguments);
  for (const char* method :
       {"/grpc.health.v1.Health/Check", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/no.such.Service/Method"}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const grpc::internal::RpcMethod call(method, grpc::internal::RpcMethod::NORMAL_RPC);
    v1::DescribeReply reply;
    const grpc::Status refused =
        grpc::internal::BlockingUnaryCall<v1::DescribeRequest, v1::DescribeReply, grpc::protobuf::MessageLite,
                                          grpc::protobuf::MessageLite>(channel.get(), call, &context,
                                                                       v1::DescribeRequest(), &reply);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method << refused.error_message();
  }
}

TEST_F(ControlSecurity, Certificates_OfTheAuthorityForClients_AreAnswered) {
  const TestAuthority authority, other;
  start(authority.options(dir_, "node", {.usage = "serverAuth"}));
  const auto call = [&](const TestAuthority& issuer, const LeafTerms& terms) {
    const TestAuthority::Leaf leaf = issuer.issue(terms);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const StubRef stub = v1::Node::NewStub(grpc::CreateCustomChannel(
        control_->address(), grpc::SslCredentials({authority.pem(), leaf.key, leaf.certificate}), arguments));
    return describe(*stub);
  };
  EXPECT_TRUE(call(authority, {.names = "DNS:anything.example", .usage = "clientAuth"}).ok());
  EXPECT_EQ(call(authority, {.usage = "serverAuth"}).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call(authority, {.usage = ""}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(call(other, {.usage = "clientAuth"}).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// A node that runs for years: its clock is put ahead, and what it shows then is valid then.
TEST_F(ControlSecurity, LeafIsRenewedWithoutARestart) {
  start(terrace::test::secret_options(dir_, 1));
  const auto coordinator = credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator);
  const auto not_after = [&] {
    const StubRef calling = stub(*coordinator);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::DescribeReply reply;
    EXPECT_TRUE(calling->Describe(&context, v1::DescribeRequest(), &reply).ok());
    const auto pem = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    return must(security::read_certificate(std::string(pem.at(0).data(), pem.at(0).size()))).not_after;
  };
  const WallTime first = not_after();
  EXPECT_EQ(not_after(), first);
  role_clock_ = 20;  // a leaf of a clock further ahead would begin in the future of the real one
  EXPECT_EQ(not_after(), first);
  role_clock_ = -300 * 24;  // put back: the leaf has not begun
  EXPECT_LT(not_after(), first);
}

// Some say nothing, some talk without TLS, some begin a handshake and stop; none of them is waited for.
TEST_F(ControlSecurity, MuteClientsAndGarbageInTheHandshake_OthersAreAnswered) {
  start(terrace::test::secret_options(dir_, 1));
  const transport::HostPort at = must(transport::parse_host_port(control_->address()));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(at.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // A ClientHello's record header that announces 512 bytes, of which a few come.
  const std::string begun("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  std::vector<int> sockets;
  for (int i = 0; i < 30; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(sockets.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const std::string says[] = {"", begun, "GET / HTTP/1.1\r\n\r\n"};
    (void)::send(sockets.back(), says[i % 3].data(), says[i % 3].size(), MSG_NOSIGNAL);
  }
  const auto coordinator = credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(describe(*stub(*coordinator)).ok());
  for (const int socket : sockets) ::close(socket);
}

// ---- whose a session is ---------------------------------------------------------------------------------------------

class ControlSecuritySessions : public ControlSecurity {
 protected:
  void SetUp() override {
    start(terrace::test::secret_options(dir_, 1));
    owner_ = credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator);
    other_ = credentials(terrace::test::secret_options(dir_, 1), Role::kCoordinator);
  }
  std::uint64_t open(v1::Node::Stub& by) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::OpenSessionReply reply;
    const grpc::Status status = by.OpenSession(&context, test::open_request(model_), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply.session();
  }
  template <class Request, class Reply>
  static grpc::StatusCode call(v1::Node::Stub& by,
                               grpc::Status (v1::Node::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                               std::uint64_t session) {
    Request request;
    request.set_session(session);
    Reply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    return (by.*method)(&context, request, &reply).error_code();
  }
  std::shared_ptr<Credentials> owner_, other_;
};

// Every call that names a session, those that are added later too.
TEST_F(ControlSecuritySessions, OfSomebodyElse_IsNotThereForAnyCall) {
  const StubRef owner = stub(*owner_);
  const std::uint64_t session = open(*owner);
  const auto others = channel(*other_);
  const google::protobuf::ServiceDescriptor* service = v1::HeartbeatRequest::descriptor()->file()->service(0);
  int n_calls = 0;
  for (int i = 0; i < service->method_count(); ++i) {
    const google::protobuf::MethodDescriptor* method = service->method(i);
    const google::protobuf::FieldDescriptor* field = method->input_type()->FindFieldByName("session");
    if (field == nullptr) continue;
    google::protobuf::MessageFactory* const factory = google::protobuf::MessageFactory::generated_factory();
    const std::unique_ptr<google::protobuf::Message> request(factory->GetPrototype(method->input_type())->New());
    const std::unique_ptr<google::protobuf::Message> reply(factory->GetPrototype(method->output_type())->New());
    request->GetReflection()->SetUInt64(request.get(), field, session);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const std::string path = "/terrace.v1.Node/" + method->name();
    using AnyMessage = grpc::protobuf::MessageLite;
    const grpc::Status refused = grpc::internal::BlockingUnaryCall<AnyMessage, AnyMessage, AnyMessage, AnyMessage>(
        others.get(), grpc::internal::RpcMethod(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC), &context,
        *request, reply.get());
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::NOT_FOUND) << path << ": " << refused.error_message();
    ++n_calls;
  }
  EXPECT_GE(n_calls, 6);
  EXPECT_EQ(node_->sessions().all().size(), 1u);
  EXPECT_EQ(call(*owner, &v1::Node::Stub::Heartbeat, session), grpc::StatusCode::OK);
}

TEST_F(ControlSecuritySessions, OfAnOwnerThatConnectsAgain_IsStillItsOwn) {
  const std::uint64_t session = open(*stub(*owner_));
  EXPECT_EQ(call(*stub(*owner_), &v1::Node::Stub::Heartbeat, session), grpc::StatusCode::OK);
  const security::TlsIdentityRef before = owner_->current();
  role_clock_ = -60 * 24;  // another leaf of the same key
  EXPECT_NE(owner_->current(), before);
  EXPECT_EQ(call(*stub(*owner_), &v1::Node::Stub::CloseSession, session), grpc::StatusCode::OK);
  EXPECT_TRUE(node_->sessions().all().empty());
}

TEST_F(ControlSecuritySessions, Status_ShowsNoIdToAnybody) {
  const StubRef owner = stub(*owner_);
  const std::uint64_t session = open(*owner);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto reader = owner->Status(&context, v1::StatusRequest());
  v1::StatusReply reply;
  ASSERT_TRUE(reader->Read(&reply));
  ASSERT_EQ(reply.sessions_size(), 1);
  EXPECT_EQ(reply.sessions(0).number(), 1u);
  const std::string id(reinterpret_cast<const char*>(&session), sizeof session);
  EXPECT_EQ(reply.SerializeAsString().find(id), std::string::npos);
}

// ---- what is logged -------------------------------------------------------------------------------------------------

TEST_F(ControlSecurity, ManyStrangers_AreOneLineThatAsksTheRightQuestions) {
  start(terrace::test::secret_options(dir_, 1));
  const auto stranger = credentials(terrace::test::secret_options(dir_, 2), Role::kCoordinator);
  for (int i = 0; i < 5; ++i) {
    // Takes the node for one of its own, so that it is the node that refuses.
    const TestAuthority authority(terrace::test::secret_of(1));
    const security::TlsIdentityRef identity = stranger->current();
    expect_shut_out(stub(grpc::SslCredentials({authority.pem(), identity->key, identity->certificates})));
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (lines().empty() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_THAT(lines()[0], HasSubstr(control_->address() + ": a client was refused in the TLS handshake: "));
  EXPECT_THAT(lines()[0], HasSubstr("secret, certificate or clock?"));
}

}  // namespace
}  // namespace terrace::node
