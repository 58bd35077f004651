#include "tests/e2e/support/node_in_process.h"

#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_run.h"
#include "tier_node/service/data_keys.h"

namespace terrace::test {
namespace {

constexpr std::uint64_t kBudget = std::uint64_t{512} << 20;

std::unique_ptr<node::SessionTable> make_sessions(arena::SlabStore& store, const node::LimitOptions& limits) {
  node::SessionOptions options;
  options.machine.cpu = kernels::detect_cpu_features();
  options.limits = limits;
  return must(node::SessionTable::create(store, options, Logger::silent()));
}

}  // namespace

NodeInProcess::NodeInProcess(transport::Transport& transport, const node::LimitOptions& limits, Waiting waiting,
                             const node::DataServerOptions& data, const std::string& host, const kernels::Ops* ops,
                             const node::MakePairExecutor& executor)
    : ops_(ops != nullptr ? *ops : must(kernels::select_ops(kernels::detect_cpu_features(), std::nullopt))),
      store_({kBudget, {}}),
      sessions_(make_sessions(store_, limits)),
      loader_(must(node::SlabLoader::make(nullptr, Logger::silent()))),
      transport_(transport::test::borrowed(transport), node::data_keys(*sessions_)),
      data_(must(node::DataServer::start({transport_, *sessions_, *loader_, compute_, ops_, Logger::silent(), waiting,
                                          nullptr, true, Background(), executor},
                                         host + ":0", {}, data))) {
  sessions_->on_change([this] { data_->wake(); });
  node::NodeInfo info;
  info.isa = kernels::name(ops_.isa);
  info.data_port = data_->port();
  control_ = must(node::ControlServer::start(host + ":0", *sessions_, *loader_, info));
}

NodeInProcess::~NodeInProcess() {
  sessions_->end_all(Error(ErrorCode::kPeerGone, "the test is over"));
  sessions_->on_change([] {});
}

}  // namespace terrace::test
