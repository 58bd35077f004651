#include "tests/fault/fault_world.h"

#include <stdexcept>
#include <utility>

#include "coordinator/legs/grpc_node_control.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/process.h"

namespace terrace::test {
namespace {

constexpr std::uint64_t kTokens = 3;
const std::vector<std::int32_t> kPrompt = {84, 104, 101, 32, 99, 97, 116, 32, 115, 97, 116};

}  // namespace

FaultWorld::FaultWorld(legs::StepClock* clock)
    : clock_(clock), model_(data_dir() / "tiny" / "tiny-q8_0.gguf"), prompt_(kPrompt) {
  const legs::OwnerTable host_only = model_.share({}, "host=0-7");
  expected_ = GateCoordinator(model_, host_only, model_.slabs.lookup(), model_.kernels).run(prompt_, kBatch, kTokens);
}

namespace {

std::string address_of(const NodeLink& link) { return link.address.empty() ? link.node.address() : link.address; }

legs::NodeSessionOptions session_options(const Patience& patience) {
  legs::NodeSessionOptions options;
  options.coordinator = "fault test";
  options.max_rows = FaultWorld::kBatch;
  options.range_rows = FaultWorld::kBatch / FaultWorld::kRanges;
  options.connect_timeout = patience.connect;
  options.liveness_timeout = patience.liveness;
  options.batch_timeout = patience.batch;
  options.stall_timeout = patience.progress;
  return options;
}

}  // namespace

Result<std::unique_ptr<legs::NodeSession>> FaultWorld::open(const NodeLink& link,
                                                            const legs::SessionModel& model) const {
  legs::ControlTimeouts timeouts;
  timeouts.progress = link.patience.progress;
  TERRACE_ASSIGN_OR_RETURN(auto control, legs::make_grpc_node_control(address_of(link), timeouts));
  transport::SealedTransport sealed(transport::test::borrowed(link.transport));
  transport::Transport& transport = link.proves ? link.transport : sealed;
  return legs::NodeSession::open(std::move(control), transport, model, session_options(link.patience));
}

Result<GateRun> FaultWorld::generate(const NodeLink& first, const NodeLink& second) const {
  const legs::SessionModel model = model_.session_model(model_.kernels);
  TERRACE_ASSIGN_OR_RETURN(const auto session, open(first, model));
  return run(*session, address_of(first), second, model);
}

Result<GateRun> FaultWorld::generate(std::unique_ptr<legs::NodeControl> first, transport::Transport& transport,
                                     const NodeLink& second) const {
  const legs::SessionModel model = model_.session_model(model_.kernels);
  const std::string address = first->address();
  TERRACE_ASSIGN_OR_RETURN(const auto session,
                           legs::NodeSession::open(std::move(first), transport, model, session_options(kAmple)));
  return run(*session, address, second, model);
}

Result<GateRun> FaultWorld::run(legs::NodeSession& first, const std::string& a, const NodeLink& second,
                                const legs::SessionModel& model) const {
  const std::string b = address_of(second);
  const legs::OwnerTable owners = model_.share({a, b}, "host=0," + a + "=1-4," + b + "=5-7");
  TERRACE_ASSIGN_OR_RETURN(const auto session_b, open(second, model));
  const auto quiet = [](const legs::ShareProgress&) {};
  TERRACE_RETURN_IF_ERROR(first.take_share(owners, 1, quiet));
  TERRACE_RETURN_IF_ERROR(session_b->take_share(owners, 2, quiet));
  GateCoordinator coordinator(model_, owners, model_.slabs.lookup(), model_.kernels, {&first.leg(), &session_b->leg()},
                              1, true, arch::Overlap::kOn, clock_);
  try {
    return coordinator.run(prompt_, kBatch, kTokens);
  } catch (const std::runtime_error& failed) {  // the gate's way to hand a step's error on
    return Error(ErrorCode::kInternal, std::string("a step failed: ") + failed.what());
  }
}

node::LimitOptions small_limits() {
  node::LimitOptions limits;
  limits.weight_bytes = std::uint64_t{1} << 20;
  return limits;
}

node::DataServerOptions brief_farewell() {
  node::DataServerOptions options;
  options.linger = options.stop_grace = std::chrono::milliseconds(50);
  return options;
}

bool ends_clean(NodeInProcess& node) {
  for (const node::SessionRef& session : node.sessions().all())
    session->end(Error(ErrorCode::kDeadline, "its lease is over"));
  return eventually([&] {
    const auto usage = node.store().usage();
    return node.sessions().all().empty() && usage.reserved == 0 && usage.used == 0;
  });
}

}  // namespace terrace::test
