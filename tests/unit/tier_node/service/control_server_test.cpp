// The control plane over real gRPC, and the data plane over TCP, both in this process on loopback.
#include "tier_node/service/control_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/transport/tcp/tcp.h"
#include "common/wire/versions.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tests/unit/tier_node/support/node_parts.h"
#include "tests/unit/tier_node/support/open_request.h"

namespace terrace::node {
namespace {

using test::must;
using test::NodeParts;
using test::NodeSettings;
using test::TestBatch;
using test::TinyModel;
using ::testing::HasSubstr;
namespace v1 = ::terrace::v1;

class ControlServerTest : public ::testing::Test {
 protected:
  void start(NodeSettings settings = {}) {
    node_ = std::make_unique<NodeParts>(model_, std::move(settings));
    node_->serve(tcp_, "127.0.0.1:0");
    NodeInfo info;
    info.isa = "avx2";
    info.kernels = {{"Q8_0", "dot_rows_q8_0_avx2"}};
    info.data_port = static_cast<std::uint16_t>(std::stoi(node_->address().substr(node_->address().rfind(':') + 1)));
    control_ = must(ControlServer::start("127.0.0.1:0", node_->sessions(), node_->loader(), info));
    stub_ = v1::Node::NewStub(grpc::CreateChannel(control_->address(), grpc::InsecureChannelCredentials()));
  }

  template <class Request, class Reply>
  grpc::Status call(grpc::Status (v1::Node::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return (stub_.get()->*method)(&context, request, reply);
  }
  template <class Request, class Reply>
  grpc::Status call(grpc::Status (v1::Node::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request) {
    Reply reply;
    return call(method, request, &reply);
  }

  v1::OpenSessionRequest open_request() const { return test::open_request(model_); }
  v1::OpenSessionReply open() {
    v1::OpenSessionReply reply;
    const grpc::Status status = call(&v1::Node::Stub::OpenSession, open_request(), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }
  grpc::Status reserve(std::uint64_t session, std::uint64_t slab_bytes) {
    v1::ReserveRequest request;
    request.set_session(session);
    request.set_slab_bytes(slab_bytes);
    v1::ReserveReply reply;
    return call(&v1::Node::Stub::Reserve, request, &reply);
  }
  v1::AssignRequest assign_request(std::uint64_t session, std::uint64_t epoch,
                                   const std::vector<ShareItem>& items) const {
    v1::AssignRequest request;
    request.set_session(session);
    request.set_epoch(epoch);
    for (const ShareItem& item : items) {
      if (request.layers_size() == 0 || request.layers().rbegin()->layer() != item.layer)
        request.add_layers()->set_layer(item.layer);
      request.mutable_layers()->rbegin()->add_experts(item.expert);
    }
    return request;
  }
  // All answers of an Assign; `on_answer` runs for each.
  grpc::Status assign(const v1::AssignRequest& request,
                      const std::function<void(const v1::AssignProgress&)>& on_answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto reader = stub_->Assign(&context, request);
    v1::AssignProgress progress;
    while (reader->Read(&progress)) on_answer(progress);
    return reader->Finish();
  }
  SessionRef session_of(std::uint64_t id) { return must(node_->sessions().find(id)); }

  TinyModel model_;
  transport::TcpTransport tcp_;
  std::unique_ptr<NodeParts> node_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<v1::Node::Stub> stub_;
};

v1::EstimateRequest estimate_request(const TinyModel& model, std::uint64_t slab_bytes) {
  v1::EstimateRequest request;
  request.set_d_model(model.manifest.d_model);
  request.set_n_experts(model.manifest.n_experts);
  for (const manifest::LayerShape& shape : model.manifest.layers) {
    v1::ExpertLayer* layer = request.add_layers();
    layer->set_n_experts(shape.n_experts);
    layer->set_gate_type(static_cast<std::uint32_t>(shape.types.gate));
    layer->set_up_type(static_cast<std::uint32_t>(shape.types.up));
    layer->set_down_type(static_cast<std::uint32_t>(shape.types.down));
    layer->set_ff(shape.ff);
  }
  request.set_max_rows(64);
  request.set_max_pairs(512);
  request.set_max_ranges(8);
  request.set_largest_frame(16 << 20);
  request.set_slab_bytes(slab_bytes);
  return request;
}

TEST_F(ControlServerTest, Estimate_IsWhatReserveThenTakes_AndTakesNothing) {
  start();
  for (const std::uint64_t slabs : {std::uint64_t{0}, std::uint64_t{1}, model_.all_slab_bytes()}) {
    v1::EstimateReply estimate;
    const auto asked = call(&v1::Node::Stub::Estimate, estimate_request(model_, slabs), &estimate);
    ASSERT_TRUE(asked.ok()) << asked.error_message();
    EXPECT_EQ(node_->store().usage().reserved, 0u);
    EXPECT_EQ(estimate.memory_budget(), node_->store().usage().budget);
    EXPECT_EQ(estimate.memory_free(), estimate.memory_budget());
    const v1::OpenSessionReply session = open();
    ASSERT_TRUE(reserve(session.session(), slabs).ok());
    EXPECT_EQ(node_->store().usage().reserved, estimate.reserved_bytes()) << slabs;
    v1::EstimateReply beside;
    ASSERT_TRUE(call(&v1::Node::Stub::Estimate, estimate_request(model_, slabs), &beside).ok());
    EXPECT_EQ(beside.memory_free() + estimate.reserved_bytes(), estimate.memory_free());
    v1::CloseSessionRequest close;
    close.set_session(session.session());
    ASSERT_TRUE(call(&v1::Node::Stub::CloseSession, close).ok());
    ASSERT_EQ(node_->store().usage().reserved, 0u);
  }
}

TEST_F(ControlServerTest, Estimate_RefusesWhatNoModelIs) {
  start();
  const auto code = [&](const std::function<void(v1::EstimateRequest&)>& change) {
    v1::EstimateRequest request = estimate_request(model_, 0);
    change(request);
    return call(&v1::Node::Stub::Estimate, request).error_code();
  };
  EXPECT_EQ(code([](auto&) {}), grpc::StatusCode::OK);
  EXPECT_EQ(code([](auto& r) { r.mutable_layers(0)->set_gate_type(4711); }), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(code([](auto& r) { r.mutable_layers(0)->set_ff(7); }), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(code([](auto& r) { r.set_d_model(0); }), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(code([](auto& r) { r.set_d_model(UINT32_MAX); }), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(code([](auto& r) { r.set_n_experts(r.n_experts() + 1); }), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(code([](auto& r) { r.clear_layers(); }), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(code([](auto& r) { r.set_max_rows(0); }), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(code([](auto& r) { r.set_max_rows(UINT32_MAX); }), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(code([](auto& r) { r.set_slab_bytes(UINT64_MAX); }), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(code([](auto& r) {
              const v1::ExpertLayer layer = r.layers(0);
              while (r.layers_size() <= 4096) *r.add_layers() = layer;
            }),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ControlServerTest, Describe_SaysWhatTheNodeIs) {
  start();
  v1::DescribeReply reply;
  ASSERT_TRUE(call(&v1::Node::Stub::Describe, v1::DescribeRequest(), &reply).ok());
  EXPECT_EQ(reply.protocol().min(), wire::kProtocolMin);
  EXPECT_EQ(reply.numerics_version(), 1u);
  EXPECT_EQ(reply.boot_id(), node_->sessions().boot_id());
  EXPECT_EQ(reply.memory_budget(), std::uint64_t{512} << 20);
  EXPECT_EQ(reply.memory_free(), reply.memory_budget());
  EXPECT_EQ(reply.kernels().at("Q8_0"), "dot_rows_q8_0_avx2");
  EXPECT_EQ(reply.isa(), "avx2");
}

TEST_F(ControlServerTest, OwnFile_ReservedAssignedComputedAndClosed) {
  start();
  const v1::OpenSessionReply opened = open();
  EXPECT_TRUE(opened.has_model());
  EXPECT_EQ(opened.data_key().size(), 32u);
  ASSERT_TRUE(reserve(opened.session(), model_.all_slab_bytes()).ok());
  bool ready = false;
  const grpc::Status assigned = assign(assign_request(opened.session(), 1, model_.everything()), [&](const auto& p) {
    EXPECT_EQ(p.wanted_size(), 0);
    EXPECT_EQ(p.slabs_total(), 16u);
    ready = p.ready();
  });
  ASSERT_TRUE(assigned.ok()) << assigned.error_message();
  EXPECT_TRUE(ready);

  const SessionRef session = session_of(opened.session());
  test::LaneClient client = node_->connect(*session, wire::Lane::kLatency);
  client.greet();
  const TestBatch batch(model_, 1, 3, 2, 4711);
  client.send_batch(batch, 1);
  const auto reply = client.receive_answer();
  ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply);
  std::vector<std::int64_t> sums(std::size_t{3} * batch.d_model());
  test::add_reply_sums(*reply, batch, *session, sums);
  EXPECT_EQ(sums, batch.expected(model_));

  v1::CloseSessionRequest close;
  close.set_session(opened.session());
  EXPECT_TRUE(call(&v1::Node::Stub::CloseSession, close).ok());
  EXPECT_EQ(client.receive_answer()->type(), wire::FrameType::kClose);
  EXPECT_EQ(call(&v1::Node::Stub::CloseSession, close).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ControlServerTest, WithoutOwnFile_FirstAnswerListsAllAndTheWeightsLaneBringsThem) {
  NodeSettings settings;
  settings.own_model = false;
  start(settings);
  const v1::OpenSessionReply opened = open();
  EXPECT_FALSE(opened.has_model());
  const std::vector<ShareItem> share = {{0, 1}, {0, 6}, {1, 3}};
  ASSERT_TRUE(reserve(opened.session(), 3 * model_.manifest.slab_bytes(0)).ok());
  test::LaneClient weights = node_->connect(*session_of(opened.session()), wire::Lane::kWeights);
  weights.greet();
  int answers = 0;
  bool ready = false;
  const grpc::Status assigned = assign(assign_request(opened.session(), 1, share), [&](const v1::AssignProgress& p) {
    ready = p.ready();
    if (answers++ > 0) return;
    std::vector<ShareItem> wanted;
    for (const v1::LayerShare& layer : p.wanted())
      for (const std::uint32_t expert : layer.experts()) wanted.push_back({layer.layer(), expert});
    EXPECT_EQ(wanted, share);
    for (const ShareItem& item : wanted)
      weights.send_piece({item.layer, item.expert, 0, model_.slab(item.layer, item.expert).size()},
                         model_.slab(item.layer, item.expert));
  });
  EXPECT_TRUE(assigned.ok()) << assigned.error_message();
  EXPECT_TRUE(ready);
}

TEST_F(ControlServerTest, WeightsConnectionEndsDuringAssign_TheCallSaysSo) {
  NodeSettings settings;
  settings.own_model = false;
  start(settings);
  const v1::OpenSessionReply opened = open();
  ASSERT_TRUE(reserve(opened.session(), model_.manifest.slab_bytes(0)).ok());
  const SessionRef session = session_of(opened.session());
  const test::LaneClient bulk = node_->connect(*session, wire::Lane::kBulk);
  std::unique_ptr<test::LaneClient> weights(new test::LaneClient(node_->connect(*session, wire::Lane::kWeights)));
  weights->greet();
  const grpc::Status assigned =
      assign(assign_request(opened.session(), 1, {{0, 1}}), [&](const v1::AssignProgress&) { weights.reset(); });
  EXPECT_EQ(assigned.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_NE(assigned.error_message().find("a weights connection ended"), std::string::npos) << assigned.error_message();
}

TEST_F(ControlServerTest, AssignCancelled_TheNextOneGoesThrough) {
  NodeSettings settings;
  settings.own_model = false;
  start(settings);
  const v1::OpenSessionReply opened = open();
  ASSERT_TRUE(reserve(opened.session(), 2 * model_.manifest.slab_bytes(0)).ok());
  {
    grpc::ClientContext context;
    const auto reader = stub_->Assign(&context, assign_request(opened.session(), 1, {{0, 0}}));
    v1::AssignProgress progress;
    ASSERT_TRUE(reader->Read(&progress));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  while (session_of(opened.session())->pending_assign()) std::this_thread::yield();
  EXPECT_EQ(session_of(opened.session())->begin_assign(2, {{0, 0}}).ok(), true);
}

TEST_F(ControlServerTest, LackingMemory_RefusedWithNumbers) {
  start();
  const grpc::Status status = reserve(open().session(), std::uint64_t{1} << 40);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("free of a budget of 512M"));
}

TEST_F(ControlServerTest, VersionsThatDoNotFit_FailedPreconditionByName) {
  start();
  v1::OpenSessionRequest numerics = open_request();
  numerics.set_numerics_version(7);
  grpc::Status status = call(&v1::Node::Stub::OpenSession, numerics);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("numerics version 7"));
  v1::OpenSessionRequest protocol = open_request();
  protocol.mutable_protocol()->set_min(wire::kProtocolMax + 1);
  protocol.mutable_protocol()->set_max(wire::kProtocolMax + 2);
  status = call(&v1::Node::Stub::OpenSession, protocol);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr(fmt::format("protocol {} to {}", wire::kProtocolMax + 1, wire::kProtocolMax + 2)));
}

TEST_F(ControlServerTest, EmptyRequests_AreErrorsNotCrashes) {
  start();
  EXPECT_FALSE(call(&v1::Node::Stub::OpenSession, v1::OpenSessionRequest()).ok());
  EXPECT_EQ(call(&v1::Node::Stub::Reserve, v1::ReserveRequest()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call(&v1::Node::Stub::Release, v1::ReleaseRequest()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call(&v1::Node::Stub::Heartbeat, v1::HeartbeatRequest()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call(&v1::Node::Stub::Forget, v1::ForgetRequest()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call(&v1::Node::Stub::Probe, v1::ProbeRequest()).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(assign(v1::AssignRequest(), [](const auto&) {}).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ControlServerTest, Probe_OneAtATimeAndOnlyWithoutAReservation) {
  start();
  const auto probe = [&](std::uint64_t session, v1::ProbeReply& reply) {
    v1::ProbeRequest request;
    request.set_session(session);
    return call(&v1::Node::Stub::Probe, request, &reply);
  };
  v1::ProbeReply reply;
  const std::uint64_t reserved = open().session(), first = open().session(), second = open().session();
  ASSERT_TRUE(reserve(reserved, model_.manifest.slab_bytes(0)).ok());
  EXPECT_EQ(probe(reserved, reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(probe(first, reply).ok());
  EXPECT_NE(reply.machine(), 0u);
  EXPECT_EQ(reply.max_slab_bytes(), Session::kMaxProbeBytes);
  EXPECT_EQ(reply.max_ms(), 180'000u);
  EXPECT_EQ(probe(first, reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(probe(second, reply).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(reserve(first, Session::kMaxProbeBytes + 1).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::CloseSessionRequest close;
  close.set_session(first);
  ASSERT_TRUE(call(&v1::Node::Stub::CloseSession, close).ok());
  EXPECT_TRUE(probe(second, reply).ok());
}

TEST_F(ControlServerTest, StatusStreams_AreBoundedAndShortCallsGoOn) {
  start();
  v1::StatusRequest watch, once;
  watch.set_interval_ms(60'000);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::StatusReply>>> open;
  v1::StatusReply reply;
  const auto read = [&](const v1::StatusRequest& request) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    open.push_back(stub_->Status(contexts.back().get(), request));
    return open.back()->Read(&reply);
  };
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(read(watch)) << i;
  EXPECT_FALSE(read(watch));
  const grpc::Status refused = open.back()->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("32 Status streams"));
  open.pop_back();
  EXPECT_TRUE(read(once)) << "one answer is no stream";
  EXPECT_TRUE(call(&v1::Node::Stub::Describe, v1::DescribeRequest()).ok());
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& reader : open) (void)reader->Finish();
}

TEST_F(ControlServerTest, ShareOfMoreExpertsThanTheModelHas_RefusedBeforeItIsMade) {
  start();
  std::vector<ShareItem> items = model_.everything();
  items.push_back(items.back());
  const grpc::Status refused = assign(assign_request(open().session(), 1, items), [](const auto&) {});
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("17 experts, the model 16"));
}

TEST_F(ControlServerTest, Status_NowAndAgainWhileTheCallLives) {
  start();
  open();
  grpc::ClientContext context;
  v1::StatusRequest request;
  request.set_interval_ms(50);
  const auto reader = stub_->Status(&context, request);
  v1::StatusReply reply;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->Read(&reply));
  EXPECT_EQ(reply.listen(), control_->address());
  EXPECT_EQ(reply.state(), "ok");
  ASSERT_EQ(reply.sessions_size(), 1);
  EXPECT_EQ(reply.sessions(0).number(), 1u);
  EXPECT_EQ(reply.sessions(0).coordinator(), "box7");
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);

  grpc::ClientContext once;
  const auto single = stub_->Status(&once, v1::StatusRequest());
  EXPECT_TRUE(single->Read(&reply));
  EXPECT_FALSE(single->Read(&reply));
  EXPECT_TRUE(single->Finish().ok());
}

TEST_F(ControlServerTest, Drain_StatusSaysSoAndNoSessionOpens) {
  start();
  EXPECT_TRUE(call(&v1::Node::Stub::Drain, v1::DrainRequest()).ok());
  EXPECT_EQ(call(&v1::Node::Stub::OpenSession, open_request()).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(node_->sessions().drained());
}

TEST_F(ControlServerTest, PortInUse_ErrorNamesTheAddress) {
  start();
  const auto second = ControlServer::start(control_->address(), node_->sessions(), node_->loader(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().text(), HasSubstr(control_->address()));
}

TEST_F(ControlServerTest, StreamsInProgress_DoNotHoldUpTheEnd) {
  NodeSettings settings;
  settings.own_model = false;
  start(settings);
  const v1::OpenSessionReply opened = open();
  ASSERT_TRUE(reserve(opened.session(), model_.manifest.slab_bytes(0)).ok());
  grpc::ClientContext assign_context, status_context;
  const auto assigning = stub_->Assign(&assign_context, assign_request(opened.session(), 1, {{0, 0}}));
  v1::StatusRequest request;
  request.set_interval_ms(1000);
  const auto watching = stub_->Status(&status_context, request);
  v1::AssignProgress progress;
  v1::StatusReply reply;
  ASSERT_TRUE(assigning->Read(&progress));
  ASSERT_TRUE(watching->Read(&reply));
  control_.reset();
  while (assigning->Read(&progress)) {
  }
  EXPECT_FALSE(assigning->Finish().ok());
}

}  // namespace
}  // namespace terrace::node
