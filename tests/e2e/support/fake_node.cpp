#include "tests/e2e/support/fake_node.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <stdexcept>

#include "terrace/v1/node.grpc.pb.h"

namespace terrace::test {

struct FakeNode::Impl final : v1::Node::Service {
  explicit Impl(const Description& d) : description(d) {}

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeReply* reply) override {
    reply->set_version("99.0");
    reply->mutable_protocol()->set_min(description.protocol_min);
    reply->mutable_protocol()->set_max(description.protocol_max);
    reply->set_numerics_version(description.numerics_version);
    reply->set_boot_id(1);
    return grpc::Status::OK;
  }
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*, v1::OpenSessionReply*) override {
    ++sessions_asked;
    return {grpc::StatusCode::INTERNAL, "nobody should have asked"};
  }

  const Description description;
  std::atomic<int> sessions_asked = 0;
  std::unique_ptr<grpc::Server> server;
};

FakeNode::FakeNode(const Description& description) : impl_(std::make_unique<Impl>(description)) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(impl_.get());
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr || port == 0) throw std::runtime_error("the fake node cannot listen");
  address_ = "127.0.0.1:" + std::to_string(port);
}

FakeNode::~FakeNode() { impl_->server->Shutdown(); }

int FakeNode::sessions_asked() const { return impl_->sessions_asked; }

}  // namespace terrace::test
