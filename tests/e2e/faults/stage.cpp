#include "tests/e2e/faults/stage.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <stop_token>

#include "coordinator/app/generation.h"
#include "tests/e2e/support/node_watch.h"
#include "tests/e2e/support/random_model.h"

namespace terrace::test {
namespace {

constexpr std::uint64_t kTokens = 12;
constexpr std::uint32_t kBatch = 4;  // the prompt takes three
const std::vector<std::int32_t> kPrompt = {84, 104, 101, 32, 99, 97, 116, 32, 115, 97, 116};
constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::chrono::seconds kHang{100};  // below ctest's own limit, and far above what a cell takes

std::filesystem::path tiny_model() { return data_dir() / "tiny" / "tiny-q8_0.gguf"; }

app::ModelOptions options_of(const std::filesystem::path& model) {
  app::ModelOptions options = gate_options(model);
  options.batch = kBatch;
  options.threads = 1;
  options.load_timeout = std::chrono::seconds(10);
  return options;
}

}  // namespace

GateRun Stage::expected() { return gate_run(options_of(tiny_model()), kPrompt, kTokens); }

Stage::Stage(const Cell& cell) : cell_(cell), model_(tiny_model()) {
  if (cell.fault == FaultKind::kSlowDisk) {
    slow_disk_.emplace(8, kMegabyte);
    std::filesystem::copy(tiny_model(), slow_disk_->path() / "model.gguf");
    model_ = slow_disk_->path() / "model.gguf";
    slow_disk_->forget_cache();
  }
  if (cell.fault == FaultKind::kFullDisk) small_disk_.emplace(std::uint64_t{64} << 10);
  if (cell.fault == FaultKind::kLinkDown || cell.fault == FaultKind::kLinkUpAgain) machine_.emplace(1);
  // A link between machines has credentials, sealed or not.
  if (cell.sealed || machine_) {
    security_.secret_file = dir_ / "secret";
    security_.plain_data = !cell.sealed;
    write_file(security_.secret_file, std::string(64, '7') + "\n");
    std::filesystem::permissions(security_.secret_file, std::filesystem::perms::owner_read);
  }
  start_node();
}

void Stage::start_node() {
  std::vector<std::string> flags = {"--threads", "1"};
  if (cell_.fault == FaultKind::kWrongHash) {
    std::filesystem::copy(tiny_model(), dir_ / "copy.gguf");
    flags.insert(flags.end(), {"--model", (dir_ / "copy.gguf").string()});
  }
  if (machine_) flags.insert(flags.end(), {"--listen", machine_->ipv4() + ":0"});
  if (!security_.secret_file.empty()) flags.insert(flags.end(), {"--secret-file", security_.secret_file.string()});
  if (security_.plain_data) flags.emplace_back("--plain-data");
  node_ = std::make_unique<NodeProcess>(flags, machine_ ? machine_->network() : -1);
  // Its threads name themselves, a little after it says that it listens.
  EXPECT_TRUE(eventually([&] {
    node_held_ = Held::by(node_->process().pid());
    return node_held_.has("thread terrace-io") && node_held_.has("thread terrace-compute");
  }));
  relay_ = std::make_unique<Relay>(node_->address(), node_->data_port());
}

void Stage::load() {
  // What the node finds wrong in its copy travels from us.
  if (cell_.fault == FaultKind::kWrongHash && cell_.phase == Phase::kLoad) change_the_nodes_copy();
  app::ModelOptions options = options_of(model_);
  options.security = security_;
  options.nodes = {relay_->address()};
  options.share = "host=0-1," + relay_->address() + "=2-7";
  options.log = Logger::to_function(LogLevel::kWarn, [this](LogLevel, std::string_view line) {
    const std::lock_guard lock(told_mutex_);
    told_.append(line).append("\n");
  });
  Environment environment({{"XDG_CACHE_HOME", cache_dir().string()}});
  if (small_disk_) {
    options.trace = small_disk_->path() / "trace.json";
    environment = Environment({{"XDG_CACHE_HOME", small_disk_->path().string()}});
  }
  engine_ = must(app::Engine::open(options, environment));
}

Stage::~Stage() {
  engine_.reset();
  relay_.reset();
  if (node_ == nullptr || !node_->process().running()) return;
  node_->kill(SIGCONT);
  if (machine_) machine_->set_link(true);
  expect_node_is_clean();
  node_->stop();
}

void Stage::expect_node_is_clean() const {
  const std::shared_ptr<security::Credentials> credentials =
      must(security::Credentials::load(security_, security::Role::kCoordinator, Logger::silent()));
  EXPECT_TRUE(NodeWatch(node_->address(), credentials).until_clean(kCleanUp)) << "a session of the coordinator is left";
  EXPECT_THAT(left_by(node_->process().pid(), node_held_, kCleanUp), testing::IsEmpty());
}

GateRun Stage::generate() { return gate_run(*engine_, kBatch, kPrompt, kTokens); }

// The bytes of the experts, wherever they lie: all but the beginning of the file.
void Stage::change_the_nodes_copy() {
  const auto path = dir_ / "copy.gguf";
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
  for (std::streamoff at = size / 4; at < size; at += 512) {
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }
  EXPECT_TRUE(file.good()) << path;
}

void Stage::lose_node() {
  // It reads its copy when it takes its share again; what it then finds wrong travels from us.
  if (cell_.fault == FaultKind::kWrongHash) change_the_nodes_copy();
  relay_->cut();
}

// The last thing before a session reserves memory is the weights lane.
void Stage::lose_node_until_its_last_lane(bool held) {
  relay_->set_mute(true);
  lose_node();
  if (held) {
    relay_->go(Relay::Deed::kPass);
    EXPECT_TRUE(eventually([this] { return relay_->gone(); }));
  }
  relay_->hold_at({Relay::Way::kToNode, wire::FrameType::kHello, wire::Lane::kWeights});
  relay_->set_mute(false);
}

bool Stage::starve() {
  if (!relay_->wait_held()) return false;
  node_->process().refuse_memory();
  relay_->go(Relay::Deed::kPass);
  return true;
}

void Stage::strike(bool held) {
  Relay::Deed deed = Relay::Deed::kPass;
  // While it is loaded, by another thread, nothing was sent before.
  if (cell_.phase != Phase::kLoad) weights_sent_before_ = counters_of_the_node().weight_bytes_sent;
  switch (cell_.fault) {
    case FaultKind::kSlowDisk:
      disk_bytes_before_ = slow_disk_->bytes_read();
      slow_disk_->forget_cache();
      [[fallthrough]];
    case FaultKind::kKilled:
      node_->kill(SIGKILL);
      node_->process().wait();
      break;
    case FaultKind::kStopped:
      node_->kill(SIGSTOP);
      break;
    case FaultKind::kLinkDown:
    case FaultKind::kLinkUpAgain:
      machine_->set_link(false);
      break;
    case FaultKind::kCorruptFrame:
      deed = Relay::Deed::kCorrupt;
      break;
    case FaultKind::kTruncatedFrame:
      deed = Relay::Deed::kTruncate;
      break;
    case FaultKind::kWrongVersion:
      deed = Relay::Deed::kVersion;
      break;
    case FaultKind::kWrongHash:
      // What it holds in memory is right: it has to read again.
      if (cell_.phase != Phase::kWeights && cell_.phase != Phase::kLoad) lose_node();
      break;
    case FaultKind::kOutOfMemory:
      // What it holds it keeps: it has to ask for memory again.
      lose_node_until_its_last_lane(held);
      return;
    case FaultKind::kFullDisk:
      small_disk_->fill();
      break;
  }
  if (held)
    relay_->go(deed);
  else if (deed != Relay::Deed::kPass)
    relay_->slip_in(deed);
}

legs::LegCounters Stage::counters_of_the_node() const {
  for (const legs::LegReport& leg : engine_->board().report())
    if (leg.name == relay_->address()) return leg.counters;
  return {};
}

std::uint64_t Stage::pairs_of_the_node() const {
  const legs::LegCounters counters = counters_of_the_node();
  return counters.pairs - counters.hedged_pairs;
}

bool Stage::has_told(const std::string& words) const {
  const std::lock_guard lock(told_mutex_);
  return told_.find(words) != std::string::npos;
}

void Stage::mend() {
  if (cell_.fault == FaultKind::kLinkUpAgain) machine_->set_link(true);
  if (cell_.fault == FaultKind::kOutOfMemory) node_->process().allow_memory();
}

void Stage::expect_fault_was_met() {
  switch (cell_.fault) {
    case FaultKind::kWrongHash:
      EXPECT_GT(counters_of_the_node().weight_bytes_sent, weights_sent_before_) << "nobody refused the copy";
      break;
    case FaultKind::kSlowDisk:
      EXPECT_GT(slow_disk_->bytes_read(), disk_bytes_before_) << "the file was not read";
      break;
    case FaultKind::kFullDisk: {
      const Status ended = engine_->end_trace();
      EXPECT_THAT(ended.ok() ? "the trace fitted" : ended.error().text(), testing::HasSubstr("is the disk full?"));
      break;
    }
    default:
      break;
  }
}

Deadline::Deadline(std::string what)
    : thread_([what = std::move(what)](const std::stop_token& stop) {
        const auto end = std::chrono::steady_clock::now() + kHang;
        while (!stop.stop_requested()) {
          if (std::chrono::steady_clock::now() > end) {
            fmt::print(stderr, "{} hangs\n", what);
            std::abort();
          }
          pause_briefly();
        }
      }) {}

Deadline::~Deadline() = default;

}  // namespace terrace::test
