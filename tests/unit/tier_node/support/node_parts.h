// A node without its program: store, sessions, loader and, where asked for, the data server, over a transport in this
// process.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "common/transport/loopback/loopback.h"
#include "common/wire/versions.h"
#include "tests/contract/sealed_transport.h"
#include "tests/unit/kernels/card/fake_card.h"
#include "tests/unit/tier_node/support/lane_client.h"
#include "tests/unit/tier_node/support/tiny_model.h"
#include "tier_node/service/data_keys.h"
#include "tier_node/service/data_server.h"
#include "tier_node/session/card_memory.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node::test {

inline constexpr unsigned kSeed = 4711;  // of batches and of what is drawn at random

// Everything on the calling thread; each run() waits for a permit once the gate is closed.
class GatedParallel final : public Parallel {
 public:
  std::size_t n_workers() const override { return 1; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override { run_in_order(n_items, fn); }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_ || permits_ > 0; });
      --waiting_;
      if (!open_) --permits_;
      runners_.insert(std::this_thread::get_id());
    }
    for (std::size_t item = 0; item < n_items; ++item) fn(item, 0);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void permit_one() {
    const std::lock_guard lock(mutex_);
    ++permits_;
    changed_.notify_all();
  }
  // The threads that have called run() since this was last asked.
  std::set<std::thread::id> take_runners() {
    const std::lock_guard lock(mutex_);
    return std::exchange(runners_, {});
  }
  // Until the compute thread stands at the gate without a permit.
  void await_standstill() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0 && permits_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int permits_ = 0;
  int waiting_ = 0;
  std::set<std::thread::id> runners_;
};

struct NodeSettings {
  std::uint64_t budget = std::uint64_t{512} << 20;
  SessionOptions sessions;
  DataServerOptions data = [] {
    DataServerOptions options;  // our client waits for the node to close: not for long
    options.linger = options.stop_grace = std::chrono::milliseconds(20);
    return options;
  }();
  bool own_model = true;
  std::uint64_t vram = 0;  // slab memory of a card that is none; 0: no card
  Waiting waiting = Waiting::kSpinThenPark;
  bool computes_here = false;  // DataServer::Parts
  bool weights_apart = true;   // DataServer::Parts::weights
};

class NodeParts {
 public:
  explicit NodeParts(const TinyModel& model, NodeSettings settings = {})
      : model_(model), settings_(std::move(settings)), store_({settings_.budget, {}}) {
    Serial serial;
    if (settings_.own_model) own_.emplace(must(OwnModel::open(model.path, "", serial)));
    settings_.sessions.machine = this_machine();
    if (settings_.vram > 0) {
      card_ = std::make_unique<terrace::test::FakeCard>(settings_.vram);
      card_memory_ = must(CardMemory::make(*card_));
      card_store_ =
          std::make_unique<arena::SlabStore>(arena::StoreOptions{card_memory_->total_bytes(), {}, card_memory_.get()});
      settings_.sessions.machine.card = card_.get();
      settings_.sessions.card_store = card_store_.get();
    }
    sessions_ = must(SessionTable::create(store_, settings_.sessions, Logger::silent()));
    loader_ = must(SlabLoader::make(own_ ? &*own_ : nullptr, Logger::silent()));
    ops_ = must(kernels::select_ops(this_machine().cpu, std::nullopt));
  }
  ~NodeParts() {
    gate_.open();
    sessions_->end_all(Error(ErrorCode::kPeerGone, "the test is over"));
    stop_server();
    loader_.reset();
  }

  void serve() { serve(loopback_, "node:9001"); }
  // `transport` as it is below the proofs of both ends.
  void serve(transport::Transport& transport, const std::string& address) {
    sealed_ = std::make_unique<transport::SealedTransport>(transport::test::borrowed(transport), data_keys(*sessions_));
    serve_as_it_is(*sealed_, address);
  }
  // `transport` says itself who connects.
  void serve_as_it_is(transport::Transport& transport, const std::string& address) {
    transport_ = &transport;
    server_ = must(start_server(transport, address));
    address_ = address.substr(0, address.rfind(':') + 1) + std::to_string(server_->port());
    sessions_->on_change([this] { server_->wake(); });
  }

  Result<std::unique_ptr<DataServer>> start_server(transport::Transport& transport, const std::string& address) {
    return DataServer::start(
        {transport, *sessions_, *loader_, gate_, ops_, Logger::silent(), settings_.waiting, card_.get(),
         settings_.computes_here, settings_.weights_apart ? std::optional(Background()) : std::nullopt},
        address, {}, settings_.data);
  }

  OpenRequest open_request() const {
    OpenRequest request;
    request.protocol_min = wire::kProtocolMin;
    request.protocol_max = wire::kProtocolMax;
    request.numerics_version = wire::kNumericsVersion;
    request.manifest = std::as_bytes(std::span(model_.manifest_bytes));
    request.limits = {512, 512 * 8, 64, std::uint64_t{64} << 20};
    request.coordinator = "test";
    for (const security::Cipher cipher : security::accepted_ciphers(settings_.sessions.limits.seal))
      request.data_ciphers.emplace_back(security::name(cipher));
    return request;
  }
  SessionRef open() { return must(sessions_->open(open_request())).session; }
  // Waits until it is live.
  void assign(const SessionRef& session, std::uint64_t epoch, const std::vector<ShareItem>& items) {
    const AssignmentRef assignment = must(session->begin_assign(epoch, items));
    if (!assignment->finished()) loader_->start(session, assignment);
    AssignProgress progress = assignment->wait(std::chrono::milliseconds(0));
    while (!progress.ready) {
      if (progress.failed) throw std::runtime_error(progress.failed->text());
      progress = assignment->wait(std::chrono::milliseconds(50));
    }
  }
  // Opened, reserved, everything in epoch 1.
  SessionRef ready_session() { return ready_session(open_request()); }
  SessionRef ready_session(OpenRequest request) {
    SessionRef session = must(sessions_->open(std::move(request))).session;
    must(sessions_->reserve(*session, {model_.all_slab_bytes(), 0, 0}, kGoOn));
    assign(session, 1, model_.everything());
    return session;
  }
  LaneClient connect(const Session& session, wire::Lane lane) { return connect(session, link_key(session, lane)); }
  LaneClient connect(const Session& session, const transport::LinkKey& key) {
    return LaneClient(*transport_, address_, key, session.limits().largest_peer_frame);
  }
  transport::LinkKey link_key(const Session& session, wire::Lane lane) const {
    return test::link_key(session, sessions_->boot_id(), lane);
  }

  const std::string& address() const { return address_; }
  arena::SlabStore& store() { return store_; }
  terrace::test::FakeCard& card() { return *card_; }
  arena::SlabStore& card_store() { return *card_store_; }
  SessionTable& sessions() { return *sessions_; }
  SlabLoader& loader() { return *loader_; }
  GatedParallel& gate() { return gate_; }
  void stop_server() {
    sessions_->on_change([] {});
    server_.reset();
  }

 private:
  const TinyModel& model_;
  NodeSettings settings_;
  transport::LoopbackTransport loopback_;
  std::unique_ptr<transport::SealedTransport> sealed_;
  transport::Transport* transport_ = nullptr;
  std::string address_;
  GatedParallel gate_;
  kernels::Ops ops_;
  std::optional<OwnModel> own_;
  arena::SlabStore store_;
  std::unique_ptr<terrace::test::FakeCard> card_;
  std::unique_ptr<CardMemory> card_memory_;
  std::unique_ptr<arena::SlabStore> card_store_;
  std::unique_ptr<SessionTable> sessions_;
  std::unique_ptr<SlabLoader> loader_;
  std::unique_ptr<DataServer> server_;
};

}  // namespace terrace::node::test
