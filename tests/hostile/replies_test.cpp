// A node that answers a coordinator with anything: each field of each answer at each extreme, over gRPC, between a
// coordinator's own session code and a node that is a real one but for that field. The coordinator either goes on or
// says which node it is that answers so; it never aborts, and takes no memory on a node's word.
#include <fmt/core.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "common/transport/tcp/tcp.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "terrace/v1/node.grpc.pb.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"
#include "tests/hostile/support/message_values.h"
#include "tests/unit/count_allocations.h"

namespace terrace::test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
namespace v1 = ::terrace::v1;

// What the coordinator's thread asks of operator new for a whole session where a field is wrong, beside what it asks
// for when none is: an answer of a hundred thousand numbers and its copy, and no more.
constexpr std::size_t kMostMoreBytes = std::size_t{8} << 20;
constexpr std::size_t kLongestError = 8 << 10;
constexpr wire::BatchLimits kLimits = {.max_rows = 4, .max_pairs = 32, .max_ranges = 2};

// Passes calls on to a node, and changes a field of one kind of answer.
class HostileNode final : public v1::Node::Service {
 public:
  explicit HostileNode(const std::string& behind)
      : node_(v1::Node::NewStub(grpc::CreateChannel(behind, grpc::InsecureChannelCredentials()))) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = fmt::format("127.0.0.1:{}", port);
  }
  ~HostileNode() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  // Of every answer from now on. A stream that its client has left may still be told something.
  void set_lie(std::function<void(Message&)> change) {
    const std::lock_guard lock(mutex_);
    lie_ = std::move(change);
  }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest* request, v1::DescribeReply* reply) override {
    return pass(&v1::Node::Stub::Describe, *request, *reply);
  }
  grpc::Status Estimate(grpc::ServerContext*, const v1::EstimateRequest* request, v1::EstimateReply* reply) override {
    return pass(&v1::Node::Stub::Estimate, *request, *reply);
  }
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override {
    return pass(&v1::Node::Stub::OpenSession, *request, *reply);
  }
  grpc::Status Reserve(grpc::ServerContext*, const v1::ReserveRequest* request, v1::ReserveReply* reply) override {
    return pass(&v1::Node::Stub::Reserve, *request, *reply);
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    return pass(&v1::Node::Stub::Heartbeat, *request, *reply);
  }
  grpc::Status Forget(grpc::ServerContext*, const v1::ForgetRequest* request, v1::ForgetReply* reply) override {
    return pass(&v1::Node::Stub::Forget, *request, *reply);
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::CloseSessionReply* reply) override {
    return pass(&v1::Node::Stub::CloseSession, *request, *reply);
  }
  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest* request, v1::ProbeReply* reply) override {
    return pass(&v1::Node::Stub::Probe, *request, *reply);
  }
  grpc::Status Assign(grpc::ServerContext* context, const v1::AssignRequest* request,
                      grpc::ServerWriter<v1::AssignProgress>* writer) override {
    return pass_all(*context, &v1::Node::Stub::Assign, *request, *writer);
  }
  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      grpc::ServerWriter<v1::StatusReply>* writer) override {
    return pass_all(*context, &v1::Node::Stub::Status, *request, *writer);
  }

 private:
  template <class Method, class Request, class Reply>
  grpc::Status pass(Method method, const Request& request, Reply& reply) {
    grpc::ClientContext context;
    const grpc::Status status = (node_.get()->*method)(&context, request, &reply);
    if (status.ok()) lie(reply);
    return status;
  }
  // Ends with the client's call.
  template <class Method, class Request, class Reply>
  grpc::Status pass_all(grpc::ServerContext& here, Method method, const Request& request,
                        grpc::ServerWriter<Reply>& writer) {
    const auto context = grpc::ClientContext::FromServerContext(here);
    const auto reader = (node_.get()->*method)(context.get(), request);
    Reply reply;
    while (reader->Read(&reply)) {
      lie(reply);
      if (!writer.Write(reply)) context->TryCancel();
    }
    return reader->Finish();
  }

  void lie(Message& message) {
    const std::lock_guard lock(mutex_);
    lie_(message);
  }

  const std::unique_ptr<v1::Node::Stub> node_;
  std::mutex mutex_;  // guards the next
  std::function<void(Message&)> lie_ = [](Message&) {};
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

class HostileReplies : public ::testing::Test {
 protected:
  // What the coordinator asks whose answer is of this type; the first error.
  terrace::Status ask(const Descriptor& type) {
    legs::ControlTimeouts timeouts;
    timeouts.progress = std::chrono::seconds(5);  // of a node that wants no slab and never gets ready
    auto control = must(legs::make_grpc_node_control(hostile_.address(), timeouts));
    if (&type == v1::StatusReply::descriptor()) return status_of(control->status());
    if (&type == v1::EstimateReply::descriptor())
      return status_of(control->estimate(model_.manifest, kLimits, 16 << 20, 0));
    if (&type == v1::ProbeReply::descriptor()) return probe(*control);
    return take_share(std::move(control));
  }

  // All values of all fields of it.
  void expect_named_or_taken(const Descriptor& type) {
    const std::size_t lawful = bytes_of(type, "nothing is wrong", true);
    for (const FieldPath& field : fields_of(type)) {
      const std::unique_ptr<Message> any(
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
      for (std::size_t nth = 0; set_value(*any, field, nth, "/etc/hostname"); ++nth) {
        hostile_.set_lie([&type, field, nth](Message& message) {
          if (message.GetDescriptor() == &type) set_value(message, field, nth, "/etc/hostname");
        });
        const std::string which = fmt::format("{}.{} {}", type.name(), dotted(field), nth);
        EXPECT_LE(bytes_of(type, which, false), lawful + kMostMoreBytes) << which;
        ++n_asked_;
      }
      hostile_.set_lie([](Message&) {});
    }
    (void)bytes_of(type, "nothing is wrong any more", true);
  }

  int n_asked_ = 0;

 private:
  template <class T>
  static terrace::Status status_of(const Result<T>& result) {
    return result.ok() ? terrace::Status() : terrace::Status(result.error());
  }

  terrace::Status probe(legs::NodeControl& control) {
    legs::SessionRequest request;
    request.numerics_version = 1;
    request.manifest = std::as_bytes(std::span(session_model_.manifest_bytes));
    request.limits = kLimits;
    request.largest_frame = 16 << 20;
    const legs::OpenedSession opened = must(control.open_session(request));
    return status_of(control.probe(opened.session));
  }

  terrace::Status take_share(std::unique_ptr<legs::NodeControl> control) {
    legs::NodeSessionOptions options;
    options.link = "tcp";
    options.max_rows = 4;
    TERRACE_ASSIGN_OR_RETURN(const auto session,
                             legs::NodeSession::open(std::move(control), proving_, session_model_, options));
    std::vector<std::uint16_t> owner(std::size_t{model_.manifest.n_layers()} * model_.manifest.n_experts, 0);
    owner[model_.manifest.n_experts + 7] = 1;
    const legs::OwnerTable owners(1, {"host", hostile_.address()}, model_.manifest.n_layers(),
                                  model_.manifest.n_experts, owner);
    return session->take_share(owners, 1, [](const legs::ShareProgress&) {});
  }

  // Bytes that asking takes of this thread; what it hears is checked.
  std::size_t bytes_of(const Descriptor& type, const std::string& which, bool lawful) {
    const std::size_t before = allocated_bytes_of_this_thread();
    const terrace::Status answer = ask(type);
    const std::size_t bytes = allocated_bytes_of_this_thread() - before;
    if (!answer.ok()) {
      const std::string& text = answer.error().text();
      EXPECT_FALSE(lawful) << type.name() << ": " << text;
      EXPECT_TRUE(text.starts_with(hostile_.address())) << which << ": " << text;
      EXPECT_LT(text.size(), kLongestError) << which;
      EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c >= 0x20 && c <= 0x7e; })) << which << ": " << text;
    }
    node_.sessions().end_all(Error(ErrorCode::kPeerGone, "the next comes"));
    return bytes;
  }

  transport::TcpTransport tcp_;
  transport::SealedTransport proving_ = transport::test::proving(tcp_);
  const GateModel model_;
  const legs::SessionModel session_model_ = model_.session_model(model_.kernels);
  NodeInProcess node_{tcp_, node::LimitOptions()};
  HostileNode hostile_{node_.address()};
};

TEST_F(HostileReplies, EveryFieldOfEveryAnswerAbsentEmptyOrHuge_TheNodeIsNamedOrTheSessionGoesOn) {
  for (const Descriptor* type :
       {v1::DescribeReply::descriptor(), v1::EstimateReply::descriptor(), v1::OpenSessionReply::descriptor(),
        v1::ReserveReply::descriptor(), v1::AssignProgress::descriptor(), v1::ProbeReply::descriptor(),
        v1::StatusReply::descriptor()})
    expect_named_or_taken(*type);
  EXPECT_GT(n_asked_, 500);
}

}  // namespace
}  // namespace terrace::test
