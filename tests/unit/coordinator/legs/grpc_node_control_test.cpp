#include "coordinator/legs/grpc_node_control.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <thread>

#include "common/transport/tcp/tcp.h"
#include "common/wire/versions.h"
#include "terrace/v1/node.grpc.pb.h"

namespace terrace::legs {
namespace {

using namespace std::chrono_literals;
namespace v1 = ::terrace::v1;

const ControlTimeouts kShort{.call = 500ms, .brief = 500ms, .progress = 200ms};
// For calls that are answered: nothing but a hang reaches these.
const ControlTimeouts kPatient{.call = 60s, .brief = 60s, .progress = 60s};

std::unique_ptr<NodeControl> control_of(const std::string& address, const ControlTimeouts& timeouts) {
  auto control = make_grpc_node_control(address, timeouts);
  EXPECT_TRUE(control.ok()) << control.error().text();
  return std::move(*control);
}

void expect_error(const Error& error, ErrorCode code, const std::string& address, const std::string& part) {
  EXPECT_EQ(name(error.code()), std::string(name(code))) << error.text();
  EXPECT_EQ(error.text().find(address), 0u) << error.text();
  EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
}

// ---- addresses ------------------------------------------------------------------------------------------------------

TEST(GrpcNodeControl, BeyondLoopback_RefusedBeforeAnythingIsSent) {
  for (const char* address : {"10.1.2.3:9000", "192.0.2.1:9000", "0.0.0.0:9000", "128.0.0.1:9000", "[2001:db8::1]:9000",
                              "[::]:9000", "[::ffff:10.1.2.3]:9000"}) {
    const auto control = make_grpc_node_control(address, kShort);
    ASSERT_FALSE(control.ok()) << address;
    expect_error(control.error(), ErrorCode::kRefused, address, "credentials");
  }
}

TEST(GrpcNodeControl, WhatIsNoAddress_IsNamed) {
  for (const char* address : {"", "box1", ":9000", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:0",
                              "::1:9000", "[::1]", "unix:/tmp/socket:9000", "dns:///box1:9000"}) {
    const auto control = make_grpc_node_control(address, kShort);
    ASSERT_FALSE(control.ok()) << address;
    EXPECT_EQ(control.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(control.error().text().find(address), std::string::npos) << control.error().text();
  }
}

TEST(GrpcNodeControl, NothingListens_PeerGone) {
  std::string address;
  {
    transport::TcpTransport tcp;
    address = (*tcp.listen("127.0.0.1:0", {}))->address();
  }
  const auto described = control_of(address, kPatient)->describe();
  ASSERT_FALSE(described.ok());
  expect_error(described.error(), ErrorCode::kPeerGone, address, "is terrace-node running");
}

TEST(GrpcNodeControl, PortThatAcceptsAndSaysNothing_Deadline) {
  transport::TcpTransport tcp;
  const auto listener = tcp.listen("127.0.0.1:0", {});
  const auto described = control_of((*listener)->address(), kShort)->describe();
  ASSERT_FALSE(described.ok());
  // gRPC may also give up on the connection first; either way the node is named.
  EXPECT_TRUE(described.error().code() == ErrorCode::kDeadline || described.error().code() == ErrorCode::kPeerGone);
  EXPECT_EQ(described.error().text().find((*listener)->address()), 0u) << described.error().text();
}

TEST(GrpcNodeControl, GrpcServerOfSomethingElse_Refused) {
  grpc::CallbackGenericService knows_no_method;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&knows_no_method);
  const auto server = builder.BuildAndStart();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto described = control_of(address, kPatient)->describe();
  ASSERT_FALSE(described.ok());
  expect_error(described.error(), ErrorCode::kRefused, address, "no terrace-node of this version");
  server->Shutdown();
}

constexpr auto go_on = [](const AssignProgress&) -> Status { return {}; };

// ---- a scripted node ------------------------------------------------------------------------------------------------

using Writer = grpc::ServerWriter<v1::AssignProgress>;

class FakeService final : public v1::Node::Service {
 public:
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeReply* reply) override {
    return describe(*reply);
  }
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*, v1::OpenSessionReply* reply) override {
    *reply = opened;
    return grpc::Status::OK;
  }
  grpc::Status Reserve(grpc::ServerContext* context, const v1::ReserveRequest*, v1::ReserveReply* reply) override {
    while (reserve_hangs && !context->IsCancelled()) std::this_thread::sleep_for(5ms);
    if (!memory_error.empty()) return {grpc::StatusCode::RESOURCE_EXHAUSTED, memory_error};
    reply->set_lease_ms(lease_ms);
    return grpc::Status::OK;
  }
  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest*, v1::ProbeReply* reply) override {
    if (!probed) return {grpc::StatusCode::ABORTED, "session 1 measures this node already"};
    *reply = *probed;
    return grpc::Status::OK;
  }
  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest*,
                      grpc::ServerWriter<v1::StatusReply>*) override {
    status_asked();
    while (!context->IsCancelled()) std::this_thread::sleep_for(1ms);
    return grpc::Status::CANCELLED;
  }
  // Says nothing until nobody waits any more.
  grpc::Status Forget(grpc::ServerContext* context, const v1::ForgetRequest*, v1::ForgetReply*) override {
    while (!context->IsCancelled()) std::this_thread::sleep_for(1ms);
    return grpc::Status::OK;
  }
  grpc::Status Assign(grpc::ServerContext* context, const v1::AssignRequest* request, Writer* writer) override {
    asked = *request;
    return assign(*context, *writer);
  }

  std::function<grpc::Status(v1::DescribeReply&)> describe = [](v1::DescribeReply&) { return grpc::Status::OK; };
  std::function<grpc::Status(grpc::ServerContext&, Writer&)> assign;
  std::function<void()> status_asked;
  v1::OpenSessionReply opened;
  std::optional<v1::ProbeReply> probed;
  v1::AssignRequest asked;
  std::string memory_error;
  bool reserve_hangs = false;
  std::uint32_t lease_ms = 1000;
};

class ScriptedNode : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    service_.opened.set_protocol(wire::kProtocolMax);
    service_.opened.set_session(77);
    service_.opened.set_data_key(std::string(32, 't'));
    service_.opened.set_data_cipher("plain");
    service_.opened.set_data_port(9001);
  }
  void TearDown() override { server_->Shutdown(std::chrono::system_clock::now()); }

  Status assign(const ControlTimeouts& timeouts, FunctionRef<Status(const AssignProgress&)> on_progress) {
    const std::vector<LayerExperts> share{{0, {1, 2}}, {3, {7}}};
    return control_of(address_, timeouts)->assign(77, 4, share, on_progress);
  }
  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(ScriptedNode, TextOfTheNode_IsMadePrintable) {
  service_.describe = [](v1::DescribeReply& reply) {
    reply.set_version("1.0\x1b[31m\n\xc2\x9b");
    reply.set_isa(std::string(4000, 'x'));
    return grpc::Status::OK;
  };
  const auto node = control_of(address_, kPatient)->describe();
  ASSERT_TRUE(node.ok()) << node.error().text();
  EXPECT_EQ(node->version, "1.0?[31m???");
  EXPECT_EQ(node->isa.size(), 512u);
  service_.describe = [](v1::DescribeReply&) { return grpc::Status(grpc::StatusCode::ABORTED, "later\x1b]0;"); };
  expect_error(control_of(address_, kPatient)->describe().error(), ErrorCode::kBusy, address_, "later?]0;");
}

TEST_F(ScriptedNode, SilentCall_Deadline) {
  service_.describe = [](v1::DescribeReply&) {
    std::this_thread::sleep_for(1s);
    return grpc::Status::OK;
  };
  expect_error(control_of(address_, kShort)->describe().error(), ErrorCode::kDeadline, address_, "no answer in time");
}

// Whoever tells it has calls to other nodes to make.
TEST_F(ScriptedNode, SilentForget_DeadlineAsSoonAsForAHeartbeat) {
  const ControlTimeouts timeouts{.call = 60s, .brief = 200ms, .progress = 60s};
  const auto begun = std::chrono::steady_clock::now();
  expect_error(control_of(address_, timeouts)->forget(77, 1).error(), ErrorCode::kDeadline, address_,
               "no answer in time");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 30s);
}

TEST_F(ScriptedNode, OpenSession_ChecksWhatItIsGiven) {
  const auto open = [&] { return control_of(address_, kPatient)->open_session({}); };
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(open()->data_key->bytes()[31], std::byte{'t'});
  const auto refused = [&](auto change) {
    const v1::OpenSessionReply good = service_.opened;
    change(service_.opened);
    const auto opened = open();
    service_.opened = good;
    return !opened.ok() && opened.error().code() == ErrorCode::kCorrupt;
  };
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_protocol(wire::kProtocolMax + 1); }));
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_session(0); }));
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_data_key("short"); }));
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.clear_data_cipher(); }));
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_data_cipher("rot13"); }));
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_data_cipher("aes-256-gcm"); })) << "we offered plain alone";
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_data_port(0); }));
  EXPECT_TRUE(refused([](v1::OpenSessionReply& r) { r.set_data_port(65536); }));
}

// A name may stand for several addresses, of which the node listens on one: the data plane goes where the answer came
// from, not where the name points first.
TEST_F(ScriptedNode, OpenSession_SaysWhichAddressAnswered) {
  const std::string port = address_.substr(address_.rfind(':'));
  for (const std::string& host : {std::string("127.0.0.1"), std::string("localhost")}) {
    const auto opened = control_of(host + port, kPatient)->open_session({});
    ASSERT_TRUE(opened.ok()) << opened.error().text();
    EXPECT_EQ(opened->data_host, "127.0.0.1") << host;
  }
}

TEST_F(ScriptedNode, OpenSession_OverIPv6_SaysTheAddressWithoutBrackets) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("[::1]:0", grpc::InsecureServerCredentials(), &port);
  FakeService service;
  service.opened = service_.opened;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr || port == 0) GTEST_SKIP() << "this machine has no IPv6 loopback";
  const auto opened = control_of("[::1]:" + std::to_string(port), kPatient)->open_session({});
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  EXPECT_EQ(opened->data_host, "::1");
  server->Shutdown(std::chrono::system_clock::now());
}

TEST_F(ScriptedNode, Reserve_TellsTheNodesNumbers) {
  EXPECT_EQ(control_of(address_, kPatient)->reserve(77, {}).value(), 1000u);
  service_.lease_ms = 999;
  expect_error(control_of(address_, kPatient)->reserve(77, {}).error(), ErrorCode::kCorrupt, address_, "lease");
  service_.memory_error = "asked 4G, 1G is free";
  expect_error(control_of(address_, kPatient)->reserve(77, {}).error(), ErrorCode::kOutOfMemory, address_,
               "1G is free");
}

TEST_F(ScriptedNode, Probe_TellsOfTheMachineOrWhyNot) {
  expect_error(control_of(address_, kPatient)->probe(77).error(), ErrorCode::kBusy, address_, "measures this node");
  service_.probed.emplace();
  expect_error(control_of(address_, kPatient)->probe(77).error(), ErrorCode::kCorrupt, address_, "no thread");
  service_.probed->set_machine(5);
  service_.probed->set_threads(3);
  service_.probed->set_cache_bytes(7);
  service_.probed->set_max_slab_bytes(9);
  const ProbedNode node = control_of(address_, kPatient)->probe(77).value();
  EXPECT_EQ(node.machine, 5u);
  EXPECT_EQ(node.threads, 3u);
  EXPECT_EQ(node.cache_bytes, 7u);
  EXPECT_EQ(node.max_slab_bytes, 9u);
}

// ---- assign ---------------------------------------------------------------------------------------------------------

TEST_F(ScriptedNode, Assign_PassesProgressUntilReady) {
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    v1::AssignProgress progress;
    progress.set_slabs_total(3);
    v1::LayerShare* layer = progress.add_wanted();
    layer->set_layer(3);
    layer->add_experts(7);
    writer.Write(progress);
    progress.clear_wanted();
    progress.set_slabs_ready(3);
    progress.set_ready(true);
    writer.Write(progress);
    return grpc::Status::OK;
  };
  std::vector<AssignProgress> seen;
  const Status assigned = assign(kPatient, [&](const AssignProgress& progress) -> Status {
    seen.push_back(progress);
    return {};
  });
  ASSERT_TRUE(assigned.ok()) << assigned.error().text();
  ASSERT_EQ(seen.size(), 2u);
  ASSERT_EQ(seen[0].wanted.size(), 1u);
  EXPECT_EQ(seen[0].wanted[0].layer, 3u);
  EXPECT_EQ(seen[0].wanted[0].experts, std::vector<std::uint16_t>{7});
  EXPECT_TRUE(seen[1].ready && seen[1].wanted.empty());
  EXPECT_EQ(service_.asked.session(), 77u);
  EXPECT_EQ(service_.asked.epoch(), 4u);
  ASSERT_EQ(service_.asked.layers_size(), 2);
  EXPECT_EQ(service_.asked.layers(1).experts(0), 7u);
}

TEST_F(ScriptedNode, SilentAssign_Deadline) {
  service_.assign = [](grpc::ServerContext& context, Writer& writer) {
    writer.Write({});
    while (!context.IsCancelled()) std::this_thread::sleep_for(5ms);
    return grpc::Status::CANCELLED;
  };
  expect_error(assign(kShort, go_on).error(), ErrorCode::kDeadline, address_, "200ms");
}

// Who asks looks after other nodes too. Were it the limit of a share that is loaded, this would be a minute later.
TEST_F(ScriptedNode, HungWhileItAcknowledgesOrGivesBack_IsNotWaitedForLong) {
  service_.assign = [](grpc::ServerContext& context, Writer&) {
    while (!context.IsCancelled()) std::this_thread::sleep_for(5ms);
    return grpc::Status::CANCELLED;
  };
  service_.reserve_hangs = true;
  const auto control = control_of(address_, {.call = 60s, .brief = 200ms, .progress = 60s});
  const std::vector<LayerExperts> share{{0, {1, 2}}};
  expect_error(control->acknowledge(77, 4, share, go_on).error(), ErrorCode::kDeadline, address_, "200ms");
  expect_error(control->give_back(77, std::uint64_t{60} << 30).error(), ErrorCode::kDeadline, address_, "no answer");
}

// A program that ends waits for no node that stands still, and still says goodbye.
TEST_F(ScriptedNode, Cancelled_CallsInProgressAndLaterOnesEnd_ButTheGoodbye) {
  const auto control = control_of(address_, kPatient);
  service_.assign = [&](grpc::ServerContext& context, Writer& writer) {
    writer.Write({});
    control->cancel();
    while (!context.IsCancelled()) std::this_thread::sleep_for(5ms);
    return grpc::Status::CANCELLED;
  };
  const std::vector<LayerExperts> share{{0, {1, 2}}};
  EXPECT_EQ(control->assign(77, 4, share, go_on).error().code(), ErrorCode::kPeerGone);
  EXPECT_EQ(control->describe().error().code(), ErrorCode::kPeerGone);
  EXPECT_EQ(control->heartbeat(77).error().code(), ErrorCode::kPeerGone);
  // The scripted service has no such call, and says so.
  EXPECT_EQ(control->close_session(77).error().code(), ErrorCode::kRefused);
}

TEST_F(ScriptedNode, CancelledStatus_Ends) {
  const auto control = control_of(address_, kPatient);
  service_.status_asked = [&] { control->cancel(); };
  EXPECT_EQ(control->status().error().code(), ErrorCode::kPeerGone);
}

TEST_F(ScriptedNode, AnswersThatTellNothingNew_AreNoProgress) {
  service_.assign = [](grpc::ServerContext& context, Writer& writer) {
    v1::AssignProgress progress;
    progress.set_slabs_total(3);
    progress.set_slabs_ready(1);
    for (std::uint64_t i = 0; !context.IsCancelled(); ++i) {
      progress.set_bytes_ready(i);
      writer.Write(progress);
      std::this_thread::sleep_for(5ms);
    }
    return grpc::Status::CANCELLED;
  };
  expect_error(assign(kShort, go_on).error(), ErrorCode::kDeadline, address_, "200ms");
}

// Told for ever, it would keep the call alive for ever.
TEST_F(ScriptedNode, WantsNoExpertOfALayer_Corrupt) {
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    v1::AssignProgress progress;
    progress.set_slabs_total(3);
    progress.add_wanted()->set_layer(2);
    writer.Write(progress);
    return grpc::Status::OK;
  };
  expect_error(assign(kPatient, go_on).error(), ErrorCode::kCorrupt, address_, "no expert of layer 2");
}

TEST_F(ScriptedNode, MoreSlabsReadyThanAskedFor_Corrupt) {
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    v1::AssignProgress progress;
    progress.set_slabs_total(4);
    writer.Write(progress);
    return grpc::Status::OK;
  };
  expect_error(assign(kPatient, go_on).error(), ErrorCode::kCorrupt, address_, "we asked for 3");
}

TEST_F(ScriptedNode, OurOwnTimeInAssign_IsNotTheNodes) {
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    v1::AssignProgress progress;
    writer.Write(progress);
    progress.set_ready(true);
    writer.Write(progress);
    return grpc::Status::OK;
  };
  const Status assigned =
      assign({.call = 60s, .brief = 60s, .progress = 2s}, [&](const AssignProgress& progress) -> Status {
        if (!progress.ready) std::this_thread::sleep_for(2500ms);  // sends slabs
        return {};
      });
  EXPECT_TRUE(assigned.ok()) << assigned.error().text();
}

TEST_F(ScriptedNode, ErrorOfTheHandler_EndsAssignWithIt) {
  service_.assign = [](grpc::ServerContext& context, Writer& writer) {
    writer.Write({});
    while (!context.IsCancelled()) std::this_thread::sleep_for(5ms);
    return grpc::Status::CANCELLED;
  };
  const Status assigned =
      assign(kPatient, [](const AssignProgress&) -> Status { return Error(ErrorCode::kPeerGone, "lane lost"); });
  ASSERT_FALSE(assigned.ok());
  EXPECT_EQ(assigned.error().text(), "lane lost");
}

TEST_F(ScriptedNode, AssignThatEndsUnready_OrGoesOnWhenReady_Corrupt) {
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    writer.Write({});
    return grpc::Status::OK;
  };
  expect_error(assign(kPatient, go_on).error(), ErrorCode::kCorrupt, address_, "without being ready");
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    v1::AssignProgress progress;
    progress.set_ready(true);
    while (writer.Write(progress)) continue;
    return grpc::Status::OK;
  };
  expect_error(assign(kPatient, go_on).error(), ErrorCode::kCorrupt, address_, "after it was ready");
}

TEST_F(ScriptedNode, WantedExpertBeyondSixteenBits_Corrupt) {
  service_.assign = [](grpc::ServerContext&, Writer& writer) {
    v1::AssignProgress progress;
    progress.add_wanted()->add_experts(65536);
    writer.Write(progress);
    return grpc::Status::OK;
  };
  expect_error(assign(kPatient, go_on).error(), ErrorCode::kCorrupt, address_, "expert 65536");
}

TEST_F(ScriptedNode, RefusedAssign_TellsWhy) {
  service_.assign = [](grpc::ServerContext&, Writer&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "epoch 4 is not above 9");
  };
  expect_error(assign(kPatient, go_on).error(), ErrorCode::kRefused, address_, "epoch 4 is not above 9");
}

}  // namespace
}  // namespace terrace::legs
