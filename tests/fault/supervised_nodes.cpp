#include "tests/fault/supervised_nodes.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fault/faults_by_seed.h"

namespace terrace::legs {

using namespace std::chrono_literals;
using test::Peer;

namespace {

constexpr auto kLease = 2s;  // of a session that its coordinator has given up

bool includes(const std::set<Slab>& all, const std::set<Slab>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace

std::set<Slab> slabs_of(const OwnerTable& owners, std::size_t leg) {
  std::set<Slab> slabs;
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer)
    for (const std::uint16_t expert : owners.experts(leg, layer)) slabs.emplace(layer, expert);
  return slabs;
}

// ---- the coordinator's end of a session
// ------------------------------------------------------------------------------

class SimulatedNode::Session final : public Member {
 public:
  Session(SimulatedNode& node, std::uint64_t number) : node_(node), number_(number) {}
  ~Session() override { node_.sessions_.erase(number_); }

  void adopt(std::unique_ptr<NodeLeg> leg) { leg_ = std::move(leg); }
  NodeLeg* leg() { return leg_.get(); }
  std::uint64_t number() const { return number_; }

  bool lease_lost() const override { return node_.up() && node_.find(number_) == nullptr; }

  Status acknowledge(const OwnerTable& owners, std::size_t leg) override {
    TERRACE_RETURN_IF_ERROR(node_.call(number_, abandoned_));
    Held& held = *node_.find(number_);
    const std::set<Slab> share = slabs_of(owners, leg);
    EXPECT_TRUE(includes(all_of(held), share)) << node_.name_ << " is to know an epoch of slabs that it lacks";
    held.epochs[owners.epoch()] = share;
    return node_.answer_to_call();
  }

  Status forget(std::uint64_t epoch) override {
    TERRACE_RETURN_IF_ERROR(node_.call(number_, abandoned_));
    node_.find(number_)->epochs.erase(epoch);
    return node_.answer_to_call();
  }

  Status take_further(const OwnerTable& owners, std::size_t leg, std::stop_token stop,
                      std::uint64_t& bytes_sent) override {
    TERRACE_RETURN_IF_ERROR(node_.call(number_, abandoned_));
    const std::set<Slab> share = slabs_of(owners, leg);
    EXPECT_LE(share.size(), node_.planned_.size() + node_.room_)
        << node_.name_ << " is given more than it has room for";
    EXPECT_TRUE(includes(share, node_.planned_)) << node_.name_ << " is to lose of its own share";
    Held& held = *node_.find(number_);
    EXPECT_EQ(held.epochs.size(), 1u) << node_.name_ << ": epochs with new slabs beside each other";
    if (node_.reserved() - held.reserved + share.size() > node_.planned_.size() + node_.room_)
      return Error(ErrorCode::kOutOfMemory, node_.name_ + ": no room beside a session that is not over yet");
    held.reserved = share.size();
    std::set<Slab> missing;
    std::ranges::set_difference(share, all_of(held), std::inserter(missing, missing.end()));
    for (std::size_t sent = 0; sent < missing.size(); ++sent) {
      if (stop.stop_requested()) return Error(ErrorCode::kPeerGone, node_.name_ + ": given up");
      TERRACE_RETURN_IF_ERROR(node_.call(number_, abandoned_));
      ++bytes_sent;
    }
    node_.find(number_)->epochs[owners.epoch()] = share;
    return node_.answer_to_call();
  }

  Status give_back(const OwnerTable& owners, std::size_t leg) override {
    TERRACE_RETURN_IF_ERROR(node_.call(number_, abandoned_));
    Held& held = *node_.find(number_);
    const std::set<Slab> share = slabs_of(owners, leg);
    if (!includes(share, all_of(held))) return Error(ErrorCode::kBusy, node_.name_ + ": slabs lie there");
    held.reserved = share.size();
    return node_.answer_to_call();
  }

  void abandon() override {
    abandoned_ = true;
    if (Held* held = node_.find(number_)) held->ends_at = node_.world_.threads.time() + kLease;
  }

 private:
  static std::set<Slab> all_of(const Held& held) {
    std::set<Slab> all;
    for (const auto& [epoch, slabs] : held.epochs) all.insert(slabs.begin(), slabs.end());
    return all;
  }

  SimulatedNode& node_;
  const std::uint64_t number_;
  bool abandoned_ = false;
  std::unique_ptr<NodeLeg> leg_;
};

// ---- the node
// --------------------------------------------------------------------------------------------------------

SimulatedNode::SimulatedNode(NodeWorld& world, std::string name, std::size_t leg, std::set<Slab> planned,
                             std::size_t room)
    : world_(world), name_(std::move(name)), leg_(leg), planned_(std::move(planned)), room_(room), brain_(world.model) {
  start();
}

void SimulatedNode::kill() {
  node_.reset();
  sessions_.clear();
}

void SimulatedNode::start() {
  node_ = std::make_unique<test::FakeNode>(
      *network_, [this](Peer& peer, const wire::Frame& frame) { answer(peer, frame); }, test::FakeNode::Stepped{});
}

void SimulatedNode::cut_links() {
  if (up()) start();
}

void SimulatedNode::step() {
  expire();
  while (node_ && node_->step()) {
  }
}

void SimulatedNode::expire() {
  std::erase_if(sessions_, [&](const auto& entry) { return entry.second.ends_at <= world_.threads.time(); });
}

SimulatedNode::Held* SimulatedNode::find(std::uint64_t session) {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : &it->second;
}

std::size_t SimulatedNode::reserved() const {
  std::size_t slabs = 0;
  for (const auto& [number, held] : sessions_) slabs += held.reserved;
  return slabs;
}

const std::map<std::uint64_t, std::set<Slab>>* SimulatedNode::epochs_of(const Leg* leg) const {
  for (const auto& [number, held] : sessions_)
    if (held.leg == leg) return &held.epochs;
  return nullptr;
}

bool SimulatedNode::holds_just(const std::set<Slab>& share) const {
  if (sessions_.size() != 1) return false;
  const Held& held = sessions_.begin()->second;
  return held.reserved == share.size() && held.epochs.size() == 1 && held.epochs.begin()->second == share;
}

std::string SimulatedNode::describe() const {
  std::string all =
      fmt::format("{}: {}{}{}", name_, up() ? "up" : "down", mute_ ? ", mute" : "", deaf_ ? ", deaf" : "");
  for (const auto& [number, held] : sessions_) {
    all += fmt::format("; session {}: {} reserved", number, held.reserved);
    for (const auto& [epoch, slabs] : held.epochs) all += fmt::format(", epoch {} of {}", epoch, slabs.size());
  }
  return all;
}

Status SimulatedNode::call(std::uint64_t session, bool abandoned) {
  world_.pass(20ms);
  if (deaf_) world_.pass(500ms);
  if (abandoned) return Error(ErrorCode::kPeerGone, name_ + ": given up");
  if (!up() || deaf_ || find(session) == nullptr) return Error(ErrorCode::kPeerGone, name_ + ": nobody answers");
  return answer_to_call();
}

Status SimulatedNode::answer_to_call() const {
  return world_.happens(30) ? Status(Error(ErrorCode::kDeadline, name_ + ": answers too late")) : Status();
}

Result<OpenedMember> SimulatedNode::open(const OwnerTable& owners, const std::stop_token& stop, bool& wrong) {
  world_.pass(100ms);
  if (!up() || deaf_) return Error(ErrorCode::kPeerGone, name_ + ": nobody answers");
  const std::set<Slab> share = slabs_of(owners, leg_);
  EXPECT_EQ(share, planned_) << name_ << " is opened for another share than the plan's";
  expire();
  if (reserved() + share.size() > planned_.size() + room_)
    return Error(ErrorCode::kOutOfMemory, name_ + ": the session before is not over yet");
  const std::uint64_t number = ++last_session_;
  sessions_[number].reserved = share.size();
  auto session = std::make_shared<Session>(*this, number);
  NodeLegOptions options;
  options.name = name_;
  options.limits = world_.model.limits();
  options.first_limit = std::chrono::milliseconds(5 + world_.random() % 100);
  links_.push_back(std::make_unique<transport::FaultyTransport>(
      network_, world_.faults ? test::draw_script(world_.random, 0) : transport::FaultScript{}, &world_.clock));
  Status why;
  auto latency = open_lane(number, wire::Lane::kLatency, stop, why);
  auto bulk = latency ? open_lane(number, wire::Lane::kBulk, stop, why) : nullptr;
  if (!bulk) return why.error();
  for (std::size_t sent = 0; sent < share.size(); ++sent) {
    if (stop.stop_requested()) return Error(ErrorCode::kPeerGone, name_ + ": stopped");
    world_.pass(5ms);
  }
  if (find(number) == nullptr) return Error(ErrorCode::kPeerGone, name_ + ": nobody answers");
  if (computes_wrong) {
    wrong = true;
    return Error(ErrorCode::kRefused, name_ + ": other bits");
  }
  session->adopt(std::make_unique<NodeLeg>(options, std::move(latency), std::move(bulk)));
  Held& held = *find(number);
  held.session = session.get();
  held.leg = session->leg();
  held.epochs[owners.epoch()] = share;
  return OpenedMember{session, {session, session->leg()}};
}

std::unique_ptr<Lane> SimulatedNode::open_lane(std::uint64_t session, wire::Lane which, const std::stop_token& stop,
                                               Status& why) {
  LaneOptions options;
  options.node = name_;
  if (!up()) {
    why = Error(ErrorCode::kPeerGone, name_ + ": nobody answers");
    return nullptr;
  }
  options.data_address = node_->address();
  options.lane = which;
  options.session = session;
  options.largest_frame = std::uint64_t{1} << 24;
  options.receive_window = std::uint64_t{1} << 26;
  options.connect_timeout = 500ms;
  options.stop = stop;
  options.clock = &world_.clock;
  auto lane = Lane::open(*links_.back(), options);
  if (lane.ok()) return std::move(*lane);
  why = lane.error();
  return nullptr;
}

void SimulatedNode::answer(Peer& peer, const wire::Frame& frame) {
  if (test::mind_manners(peer, frame) || frame.header.type != wire::FrameType::kBatch) return;
  const Held* held = find(frame.header.session);
  if (held == nullptr) return;
  const auto batch = wire::read_batch(frame, world_.model.limits());
  ASSERT_TRUE(batch.ok()) << batch.error().text();
  const auto epoch = held->epochs.find(batch->epoch);
  const bool knows = epoch != held->epochs.end();
  if (!knows && !is_awaited(held->leg, batch->epoch))  // of a step that was over before it came
    return peer.send_error(frame.header.sequence, ErrorCode::kStaleEpoch, "forgotten");
  ASSERT_TRUE(knows) << name_ << " is asked by a step for epoch " << batch->epoch << ", which it does not know";
  for (const wire::Pair& pair : batch->pairs)
    ASSERT_TRUE(epoch->second.contains({batch->layer, pair.expert}))
        << name_ << " is asked for layer " << batch->layer << ", expert " << pair.expert << ", not in epoch "
        << batch->epoch;
  if (mute_) return;
  for (const test::Reply& reply : brain_.replies(frame)) reply.send(peer);
}

}  // namespace terrace::legs
