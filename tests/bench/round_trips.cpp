// What a node's links cost, every term of it, printed and compared with what bounds it (docs/performance.md):
//
//   packing        int64 sums packed and unpacked, GB/s of a core
//   round trip     a decode batch to a node in this process and its reply, 5 KB out and 15 KB back, the node's sums
//                  from memory instead of computed; beside it the same bytes sent to and fro over the same transport
//                  and nothing else. Once with other ends that sleep, once with such that look for a while first
//   two nodes      the same batch to two nodes at once
//   --compute      nodes in this process compute every batch: what two nodes cost where there is something to wait for
//   --node H:P     instead: a node that runs elsewhere. Weights sent to it, sealed and verified there; round trips of
//                  decode batches with and without weights on the way. tests/bench/links.sh makes the links.
//
//   ninja -C build/release terrace-bench-round-trips terrace-random-model
//
// terrace-random-model lies in ../bin, seen from this program, so that both may be copied to another machine.
//
//   build/release/tests/terrace-bench-round-trips [--plain] [--compute] [--trips N]
//   build/release/tests/terrace-bench-round-trips --node HOST:PORT --model FILE [--secret-file F] [--sockets N]
//
// Ratios are judged (exit 1) on a machine with at least four cores, where nobody waits for the other's core.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/security/credentials.h"
#include "common/threads/background.h"
#include "common/threads/cpus.h"
#include "common/transport/tcp/tcp.h"
#include "common/wire/pack.h"
#include "coordinator/legs/grpc_node_control.h"
#include "coordinator/legs/node_session.h"
#include "tests/bench/echo.h"
#include "tests/bench/remembering_executor.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_in_process.h"
#include "tests/e2e/support/random_model.h"

namespace terrace {
namespace {

using test::must;
using Clock = std::chrono::steady_clock;

struct Arguments {
  bool seal = true;
  bool compute = false;  // nodes in this process compute every batch
  std::size_t trips = 5000;
  std::string node;  // empty: nodes in this process
  std::string model;
  std::string secret_file;
  std::uint32_t sockets = 1;
};

struct Times {
  std::vector<double> us;
  double at(double share) {
    std::sort(us.begin(), us.end());
    return us[std::min(us.size() - 1, static_cast<std::size_t>(share * static_cast<double>(us.size())))];
  }
};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// `trip` until it has been made so often, a tenth of that before for nothing.
template <class Trip>
Times time_trips(std::size_t trips, Trip trip) {
  for (std::size_t i = 0; i < trips / 10; ++i) trip();
  Times times;
  times.us.reserve(trips);
  for (std::size_t i = 0; i < trips; ++i) {
    const auto start = Clock::now();
    trip();
    times.us.push_back(us_since(start));
  }
  return times;
}

Waiting waiting_here() { return must(choose_cpus(cpus_of_this_machine(), {})).waiting; }

// Of ratios, whether each is what it should be.
class Judge {
 public:
  explicit Judge(bool judges) : judges_(judges) {}
  void ratio(const char* what, double value, double most) {
    const bool fine = value <= most;
    fmt::print("  {:<52} {:6.2f}   at most {:.2f}: {}\n", what, value, most,
               fine      ? "yes"
               : judges_ ? "NO"
                         : "no (not judged here)");
    ok_ = ok_ && (fine || !judges_);
  }
  int exit_code() const { return ok_ ? 0 : 1; }

 private:
  bool judges_;
  bool ok_ = true;
};

// ---- packing --------------------------------------------------------------------------------------------------------

// Sums as ordinary models have them: blocks of 3 bytes, and of 4.
void bench_packing() {
  constexpr std::size_t kWidth = 4096, kRows = 64;
  for (const int bits : {22, 30}) {
    std::vector<std::int64_t> sums(kRows * kWidth), back(kRows * kWidth);
    std::uint64_t state = 4711;
    for (std::int64_t& value : sums) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<std::int64_t>(state) >> (64 - bits);
    }
    const std::size_t widest = wire::widest_packed_bytes(kWidth);
    std::vector<std::byte> packed(kRows * widest);
    std::array<std::size_t, kRows> bytes{};
    Times pack = time_trips(200, [&] {
      for (std::size_t row = 0; row < kRows; ++row)
        bytes[row] = wire::pack_row({sums.data() + row * kWidth, kWidth}, packed.data() + row * widest);
    });
    Times unpack = time_trips(200, [&] {
      for (std::size_t row = 0; row < kRows; ++row)
        (void)must(
            wire::unpack_add_row({packed.data() + row * widest, bytes[row]}, {back.data() + row * kWidth, kWidth}));
    });
    Times check = time_trips(200, [&] {
      for (std::size_t row = 0; row < kRows; ++row)
        (void)must(wire::check_packed_row({packed.data() + row * widest, bytes[row]}, kWidth));
    });
    const double gigabytes = static_cast<double>(sums.size() * sizeof(std::int64_t)) / 1e9;
    fmt::print("packing, {} bytes a value: {:.1f} GB/s of int64; unpacking and adding {:.1f}; checking alone {:.1f}\n",
               bits / 8 + 1, gigabytes / pack.at(0.5) * 1e6, gigabytes / unpack.at(0.5) * 1e6,
               gigabytes / check.at(0.5) * 1e6);
  }
}

// ---- batches --------------------------------------------------------------------------------------------------------

// One row for one expert of a layer, as a decode step has it.
class DecodeBatch {
 public:
  DecodeBatch(const test::GateModel& model, std::uint32_t layer, std::uint16_t expert)
      : d_model_(model.manifest.d_model), shift_(model.manifest.shift), pair_{0, expert, 1.0f}, sums_(d_model_) {
    const kernels::ExpertKernels& kernels = model.kernels[layer];
    std::vector<float> row(d_model_);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(static_cast<int>(i * 37 % 255) - 127) / 64;
    rows_.resize(row_bytes(kernels.gate_class(), d_model_));
    model.ops.quantize_row(kernels.gate_class(), row.data(), d_model_, rows_.data());
    batch_.epoch = 1;
    batch_.layer = layer;
    batch_.gate_rows = batch_.up_rows = {kernels.gate_class(), rows_.data(), rows_.size()};
    batch_.n_rows = 1;
    batch_.pairs = {&pair_, 1};
    batch_.ranges = {&range_, 1};
  }
  legs::Ticket submit(legs::NodeLeg& leg) { return must(leg.submit(batch_)); }
  void collect(legs::NodeLeg& leg, legs::Ticket ticket) {
    const Status collected = leg.collect(ticket, {sums_.data(), d_model_, shift_}, failed_);
    if (!collected.ok()) throw std::runtime_error(collected.error().text());
    ++n_collected_;
  }
  // That what came is what this machine computes, as often as it was collected.
  void check(const test::GateModel& model) const {
    std::vector<std::int64_t> once(d_model_);
    const legs::SlabLookup lookup = model.slabs.lookup();
    const auto slab_of = [&](std::uint16_t expert) { return lookup(batch_.layer, expert); };
    kernels::Executor executor(model.serial, model.ops);
    std::array<std::uint8_t, 1> failed{};
    (void)must(executor.run(model.kernels[batch_.layer], slab_of,
                            {batch_.gate_rows, batch_.up_rows, batch_.n_rows, batch_.pairs},
                            {once.data(), d_model_, shift_}, failed, [] { return true; }));
    for (std::size_t i = 0; i < d_model_; ++i)
      if (failed != failed_ || sums_[i] != once[i] * n_collected_)
        throw std::runtime_error(fmt::format("the node's sums are wrong at value {}", i));
  }

 private:
  const std::size_t d_model_;
  const int shift_;
  const kernels::Pair pair_;
  const legs::RowRange range_{0, 1};
  std::vector<std::byte> rows_;
  std::vector<std::int64_t> sums_;
  std::array<std::uint8_t, 1> failed_{};
  std::int64_t n_collected_ = 0;
  legs::LegBatch batch_;
};

struct OpenedNode {
  std::unique_ptr<legs::NodeSession> session;
  double share_seconds = 0;
};

OpenedNode open_node(const std::string& address, transport::Transport& transport, const legs::SessionModel& model,
                     const legs::NodeSessionOptions& options, const legs::OwnerTable& owners,
                     const std::shared_ptr<security::Credentials>& credentials = {}) {
  OpenedNode node;
  node.session = must(
      legs::NodeSession::open(must(legs::make_grpc_node_control(address, {}, credentials)), transport, model, options));
  // From when the node has said what it wants (before, it set memory aside) until it says that all is verified (then a
  // canary is computed).
  std::optional<Clock::time_point> start;
  const Status taken = node.session->take_share(owners, 1, [&](const legs::ShareProgress&) {
    if (!start) start = Clock::now();
    node.share_seconds = us_since(*start) / 1e6;
  });
  if (!taken.ok()) throw std::runtime_error(taken.error().text());
  return node;
}

// Rows of 5,112 bytes, replies of 3 to 4 bytes a value.
test::RandomModel wide_and_small() {
  return {.layers = 1, .d_model = 4544, .experts = 8, .ff = 1, .type = "q8_0", .context = 64};
}

std::filesystem::path programs() {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "bin";
}

// Batches to nodes in this process, and the same bytes alone, both with other ends that wait in the same way.
class RoundTrips {
 public:
  explicit RoundTrips(const Arguments& arguments)
      : arguments_(arguments), session_model_(model_.session_model(model_.kernels)) {
    limits_.seal = options_.seal = arguments.seal;
    options_.waiting = waiting_;
  }

  Waiting waiting() const { return waiting_; }
  void run(Waiting other_end, Judge& judge) {
    const Node one(*this, other_end), other(*this, other_end);
    DecodeBatch batch(model_, 0, 4), beside(model_, 0, 5);
    const legs::LegCounters before = one.leg().counters();
    Times submit;
    submit.us.reserve(2 * arguments_.trips);
    Times trip = time_trips(arguments_.trips, [&] {
      const auto start = Clock::now();
      const legs::Ticket ticket = batch.submit(one.leg());
      submit.us.push_back(us_since(start));
      batch.collect(one.leg(), ticket);
    });
    const legs::LegCounters done = one.leg().counters() - before;
    Times bare = time_bytes_alone(done.bytes_sent / done.batches, done.bytes_received / done.batches, other_end);
    Times both = time_trips(arguments_.trips, [&] {
      const legs::Ticket mine = batch.submit(one.leg());
      const legs::Ticket its = beside.submit(other.leg());
      batch.collect(one.leg(), mine);
      beside.collect(other.leg(), its);
    });
    batch.check(model_);
    beside.check(model_);

    fmt::print("{}, nodes {}, {} trips, the other end waits: {}; {} bytes out, {} back\n",
               arguments_.seal ? "sealed" : "plain", arguments_.compute ? "compute" : "remember", arguments_.trips,
               name(other_end), done.bytes_sent / done.batches, done.bytes_received / done.batches);
    fmt::print("  {:<24} {:>9} {:>9} {:>9}\n", "us", "p50", "p99", "p99.9");
    print("the bytes alone", bare);
    print("a batch to one node", trip);
    print("of it until it is sent", submit);
    print("a batch to each of two", both);
    if (!arguments_.compute) fmt::print("  {:<24} {:9.2f} mean\n", "of it adding what is kept", remembering_.mean_us());
    if (!arguments_.compute) judge.ratio("batch / the bytes alone, p50", trip.at(0.5) / bare.at(0.5), 1.3);
    if (!arguments_.compute) judge.ratio("batch / the bytes alone, p99", trip.at(0.99) / bare.at(0.99), 1.5);
    judge.ratio("two nodes / one, p50", both.at(0.5) / trip.at(0.5), 1.15);
  }

 private:
  struct Node {
    Node(RoundTrips& bench, Waiting waiting)
        : node(bench.tcp_, bench.limits_, waiting, {}, "127.0.0.1", nullptr, bench.maker()),
          session(open_node(node.address(), bench.proving_, bench.session_model_, bench.options_,
                            bench.model_.share({node.address()}, "host=0-3," + node.address() + "=4-7"))
                      .session) {}
    legs::NodeLeg& leg() const { return session->leg(); }

    test::NodeInProcess node;
    const std::unique_ptr<legs::NodeSession> session;
  };

  node::MakePairExecutor maker() {
    if (arguments_.compute) return node::make_pair_executor;
    return [this](Parallel& parallel, const kernels::Ops& ops) {
      return std::make_unique<test::RememberingExecutor>(parallel, ops, remembering_);
    };
  }
  static void print(const char* what, Times& times) {
    fmt::print("  {:<24} {:9.1f} {:9.1f} {:9.1f}\n", what, times.at(0.5), times.at(0.99), times.at(0.999));
  }
  // So many bytes on the link: tags come on top of frames.
  Times time_bytes_alone(std::uint64_t out, std::uint64_t back, Waiting other_end) {
    const std::uint64_t tag = arguments_.seal ? wire::kSealBytes : 0;
    transport::test::KeyedTransport keyed(
        transport::test::borrowed(tcp_),
        transport::test::test_link(arguments_.seal ? security::Cipher::kAes256Gcm : security::Cipher::kPlain));
    test::Echo echo(keyed, out - tag, back - tag, other_end);
    return time_trips(arguments_.trips, [&] { echo.trip(waiting_); });
  }
  // Its path, once the model has been made there.
  static std::filesystem::path made(const std::filesystem::path& path) {
    test::make_random_model(wide_and_small(), path, programs());
    return path;
  }

  const Arguments arguments_;
  const Waiting waiting_ = waiting_here();
  const test::TempDir dir_;
  const test::GateModel model_{made(dir_ / "model.gguf")};
  const legs::SessionModel session_model_;
  transport::TcpTransport tcp_;
  transport::SealedTransport proving_ = transport::test::proving(tcp_);
  test::RememberingTime remembering_;
  node::LimitOptions limits_;
  legs::NodeSessionOptions options_;
};

int bench_here(const Arguments& arguments) {
  bench_packing();
  const unsigned cores = std::thread::hardware_concurrency();
  Judge judge(cores >= 4);
  RoundTrips bench(arguments);
  fmt::print("round trips of decode batches, {} cores; this end waits: {}\n", cores, name(bench.waiting()));
  bench.run(Waiting::kBlock, judge);
  if (bench.waiting() != Waiting::kBlock) bench.run(bench.waiting(), judge);
  return judge.exit_code();
}

// ---- a node elsewhere -----------------------------------------------------------------------------------------------

// Weights, in a thread of its own, until it is told to end.
class Weights {
 public:
  Weights(legs::NodeSession& session, const legs::OwnerTable& owners, const CpuSet& cpus)
      : thread_([this, &session, &owners, cpus] {
          const ThreadAffinity on_cpus = must(ThreadAffinity::confine(cpus));
          constexpr std::uint64_t kAtOnce = std::uint64_t{4} << 20;
          for (; !stop_; bytes_ += kAtOnce) (void)must(session.measure_weights_rate(owners, 1, kAtOnce));
        }) {}
  ~Weights() {
    stop_ = true;
    thread_.join();
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::thread thread_;
};

int bench_there(const Arguments& arguments) {
  const test::GateModel model(arguments.model);
  const legs::SessionModel session_model = model.session_model(model.kernels);
  transport::SealedTransport transport(std::make_shared<transport::TcpTransport>());
  security::SecurityOptions secure;
  secure.secret_file = arguments.secret_file;
  const auto credentials =
      arguments.secret_file.empty()
          ? nullptr
          : must(security::Credentials::load(secure, security::Role::kCoordinator, Logger::silent()));
  legs::NodeSessionOptions options;
  options.waiting = waiting_here();
  options.seal = credentials != nullptr && arguments.seal;
  options.sockets = arguments.sockets;
  options.decode = std::make_shared<transport::DecodeActivity>();
  const legs::OwnerTable owners =
      model.share({arguments.node}, fmt::format("{}=0-{}", arguments.node, model.experts.n_experts - 1));
  const OpenedNode decoding = open_node(arguments.node, transport, session_model, options, owners, credentials);
  const double sent = static_cast<double>(decoding.session->leg().counters().weight_bytes_sent);
  fmt::print("weights: {:.0f} MB in {:.2f} s, {:.1f} MB/s, {}, verified by the node, {} connections\n", sent / 1e6,
             decoding.share_seconds, sent / 1e6 / decoding.share_seconds, options.seal ? "sealed" : "plain",
             decoding.session->sockets());

  DecodeBatch batch(model, 0, 1);
  const auto trip = [&] { batch.collect(decoding.session->leg(), batch.submit(decoding.session->leg())); };
  // As the programs do: the step's thread has a CPU, and what sends weights keeps off it.
  const CpuChoice cpus = must(choose_cpus(cpus_of_this_machine(), {}));
  const ThreadAffinity step = must(ThreadAffinity::confine(cpus.pinned.empty() ? CpuSet() : CpuSet{cpus.pinned[0]}));
  Times alone = time_trips(arguments.trips, trip);
  // Of another session, as it is when a node comes back; what it sends is there already.
  const OpenedNode loading = open_node(arguments.node, transport, session_model, options, owners, credentials);
  const double unpaced = must(loading.session->measure_weights_rate(owners, 1, std::uint64_t{64} << 20));
  Weights weights(*loading.session, owners, cpus_beside_steps(cpus));
  const auto start = Clock::now();
  const std::uint64_t before = weights.bytes();
  Times with = time_trips(arguments.trips, trip);
  const double seconds = us_since(start) / 1e6;
  fmt::print(
      "decode batches, us: alone p50 {:.1f}, p90 {:.1f}, p99 {:.1f}; with weights on the way p50 {:.1f}, p90 {:.1f}, "
      "p99 {:.1f}\n",
      alone.at(0.5), alone.at(0.9), alone.at(0.99), with.at(0.5), with.at(0.9), with.at(0.99));
  fmt::print("weights meanwhile {:.1f} MB/s of {:.1f} without a step; link measured {:.1f} MB/s, pace {:.1f}\n",
             static_cast<double>(weights.bytes() - before) / 1e6 / seconds, unpaced / 1e6,
             static_cast<double>(loading.session->link_rate().measured()) / 1e6,
             static_cast<double>(loading.session->link_rate().pace()) / 1e6);
  Judge judge(std::thread::hardware_concurrency() >= 4);
  judge.ratio("decode batches with weights / without, p99", with.at(0.99) / alone.at(0.99), 1.5);
  return judge.exit_code();
}

int run(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] {
      if (++i == argc) throw std::runtime_error(flag + " needs a value");
      return std::string(argv[i]);
    };
    if (flag == "--plain")
      arguments.seal = false;
    else if (flag == "--compute")
      arguments.compute = true;
    else if (flag == "--trips")
      arguments.trips = std::max(10ul, std::stoul(value()));
    else if (flag == "--node")
      arguments.node = value();
    else if (flag == "--model")
      arguments.model = value();
    else if (flag == "--secret-file")
      arguments.secret_file = value();
    else if (flag == "--sockets")
      arguments.sockets = static_cast<std::uint32_t>(std::stoul(value()));
    else
      throw std::runtime_error("unknown flag " + flag);
  }
  return arguments.node.empty() ? bench_here(arguments) : bench_there(arguments);
}

}  // namespace
}  // namespace terrace

int main(int argc, char** argv) {
  try {
    return terrace::run(argc, argv);
  } catch (const std::exception& thrown) {
    fmt::print(stderr, "terrace-bench-round-trips: {}\n", thrown.what());
    return 2;
  }
}
