#include "coordinator/legs/auditor.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "coordinator/legs/dispatcher.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs {
namespace auditor_test {

using namespace std::chrono_literals;
using test::kExperts;
using test::kTopK;
using test::kWidth;
using test::Routed;
using test::Sums;

const test::TestModel& audited_model() {
  static const test::TestModel made;
  return made;
}

// A node that computes, rightly or not, and can be audited.
class AuditedLeg final : public Leg {
 public:
  explicit AuditedLeg(std::string name) : name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  LegKind kind() const override { return LegKind::kNode; }
  LegState state() const override { return put_out_ ? LegState::kWrong : suspect ? LegState::kSuspect : LegState::kOk; }
  std::uint64_t experts() const override { return 0; }
  LegCounters counters() const override { return {}; }
  void put_out(LegState state, const Error& why) override {
    EXPECT_EQ(state, LegState::kWrong);
    put_out_ = why;
  }
  const Error* why_out() const override { return put_out_ ? &*put_out_ : nullptr; }
  bool by_range() const override { return true; }
  RangeState range_state(Ticket ticket, std::size_t) const override {
    const Open& open = open_.at(ticket);
    if (silent_in_audits && open.batch.form == ReplyForm::kSlots) return RangeState::kOpen;
    return open.taken ? RangeState::kClosed : RangeState::kReady;
  }
  Status ticket_status(Ticket ticket) const override {
    if (put_out_) return *put_out_;
    if (lost_in_audits && open_.at(ticket).batch.form == ReplyForm::kSlots)
      return Error(ErrorCode::kPeerGone, name_ + ": gone");
    return {};
  }
  void set_suspect(Ticket) override { suspect = true; }
  void abandon(Ticket ticket) override { open_.erase(ticket); }
  StepClock::TimePoint soft_limit(Ticket) const override { return limit; }

  Result<Ticket> submit(const LegBatch& batch) override {
    if (put_out_) return *put_out_;
    if (refuse_audits && batch.form == ReplyForm::kSlots) return Error(ErrorCode::kRefused, name_ + ": no audits here");
    open_[++last_] = {batch};
    most_open = std::max(most_open, open_.size());
    return last_;
  }
  Status collect(Ticket, kernels::SumsView, std::span<std::uint8_t>) override { return {}; }
  Status take(Ticket ticket, std::size_t, kernels::SumsView sums, std::span<std::uint8_t> failed) override {
    Open& open = open_.at(ticket);
    if (open.taken) return {};  // all ranges came with the first
    const Sums own = local_sums(audited_model(), open.batch);
    for (std::size_t i = 0; i < own.values.size(); ++i) sums.data[i] += own.values[i];
    for (std::size_t i = 0; i < own.failed.size(); ++i) failed[i] |= own.failed[i];
    sum_pairs += open.batch.pairs.size();
    open.taken = true;
    return {};
  }
  void take_slots(Ticket ticket, std::span<float> slots, std::span<std::uint8_t> failed) override {
    const LegBatch& batch = open_.at(ticket).batch;
    EXPECT_EQ(batch.ranges.size(), 1u);
    const test::Slots own = local_slots(audited_model(), batch);
    std::copy(own.values.begin(), own.values.end(), slots.begin());
    std::copy(own.failed.begin(), own.failed.end(), failed.begin());
    if (lie) lie(batch, slots, failed);
    for (const kernels::Pair& pair : batch.pairs) audited.emplace_back(batch.layer, pair.row, pair.expert);
    largest_audit = std::max(largest_audit, batch.pairs.size());
  }

  std::function<void(const LegBatch&, std::span<float>, std::span<std::uint8_t>)> lie;
  bool refuse_audits = false;
  bool lost_in_audits = false;
  bool silent_in_audits = false;
  bool suspect = false;
  StepClock::TimePoint limit = StepClock::TimePoint::max();
  std::vector<std::tuple<std::uint32_t, std::uint16_t, std::uint16_t>> audited;
  std::size_t sum_pairs = 0, largest_audit = 0, most_open = 0;
  bool idle() const { return open_.empty(); }

 private:
  std::string name_;
  std::optional<Error> put_out_;
  struct Open {
    LegBatch batch;
    bool taken = false;
  };
  std::map<Ticket, Open> open_;
  Ticket last_ = 0;
};

// Time stands still but where a test moves it, and where somebody waits.
class HeldClock final : public StepClock {
 public:
  TimePoint now() override { return time; }
  void wait(std::span<pollfd>, TimePoint until) override { time = std::max(time, until); }
  TimePoint time{};
};

class AuditorTest : public testing::Test {
 protected:
  // other: the odd ones of the node's experts are its; null: one node has them all.
  void start(double fraction, std::uint64_t seed = 0, AuditedLeg* other = nullptr) {
    AuditOptions options;
    options.fraction = fraction;
    options.seed = seed;
    options.clock = &clock_;
    const auto slab_id = [](std::uint32_t layer, std::uint16_t expert) {
      return fmt::format("slab{}-{}", layer, expert);
    };
    auditor_.emplace(options, AuditModel{audited_model().kernels, audited_model().lookup(), slab_id}, serial_,
                     audited_model().ops);
    std::vector<std::uint16_t> owners(audited_model().n_layers() * kExperts);
    for (std::size_t i = 0; i < owners.size(); ++i)
      owners[i] = i % kExperts < 2 ? 0 : other != nullptr && i % 2 == 1 ? 2 : 1;
    std::vector<std::string> names{"host", node_.name()};
    if (other != nullptr) names.push_back(other->name());
    table_.emplace(test::kEpoch, names, audited_model().n_layers(), kExperts, owners);
    host_.emplace(*table_, audited_model().lookup(), audited_model().kernels, serial_, audited_model().ops);
    std::vector<std::shared_ptr<Leg>> legs;
    for (Leg* leg : std::initializer_list<Leg*>{&*host_, &node_, other})
      if (leg != nullptr) legs.emplace_back(std::shared_ptr<void>(), leg);
    dispatcher_.emplace(DispatcherParts{.epoch = make_epoch(*table_, std::move(legs)),
                                        .kernels = audited_model().kernels,
                                        .top_k = kTopK,
                                        .parallel = serial_,
                                        .ops = audited_model().ops,
                                        .clock = &clock_,
                                        .auditor = &*auditor_});
  }

  Status layer(const Routed& routed, Sums& sums) {
    if (const Status submitted = dispatcher_->submit(routed.view); !submitted.ok()) return submitted;
    return dispatcher_->collect(sums.view(), sums.failed);
  }
  // A step over all layers; each layer's sums are exact, or this is the error.
  Status step(std::uint32_t n_rows, Priority priority = Priority::kDecode) {
    dispatcher_->begin_step();
    for (std::uint32_t l = 0; l < audited_model().n_layers(); ++l) {
      const Routed routed(l, n_rows, priority, rng_);
      Sums sums(n_rows);
      TERRACE_RETURN_IF_ERROR(layer(routed, sums));
      EXPECT_EQ(sums, host_alone(routed)) << "layer " << l;
    }
    return {};
  }
  // Two halves of a step, layer by layer in turn.
  Status step_in_halves(std::uint32_t n_rows) {
    dispatcher_->begin_step();
    std::deque<Routed> open;
    const auto collect = [&]() -> Status {
      Sums sums(open.front().view.n_rows);
      TERRACE_RETURN_IF_ERROR(dispatcher_->collect(sums.view(), sums.failed));
      EXPECT_EQ(sums, host_alone(open.front())) << "layer " << open.front().view.layer;
      open.pop_front();
      return {};
    };
    for (std::uint32_t l = 0; l < audited_model().n_layers(); ++l)
      for (const std::uint32_t rows : {n_rows, n_rows + 1}) {
        if (open.size() == 2) TERRACE_RETURN_IF_ERROR(collect());
        open.emplace_back(l, rows, Priority::kPrompt, rng_);
        TERRACE_RETURN_IF_ERROR(dispatcher_->submit(open.back().view));
      }
    while (!open.empty()) TERRACE_RETURN_IF_ERROR(collect());
    return {};
  }
  Sums host_alone(const Routed& routed) {
    const OwnerTable all(test::kEpoch, {"host"}, audited_model().n_layers(), kExperts,
                         std::vector<std::uint16_t>(audited_model().n_layers() * kExperts, 0));
    HostLeg host(all, audited_model().lookup(), audited_model().kernels, serial_, audited_model().ops);
    Dispatcher dispatcher(all, {&host}, audited_model().kernels, kTopK, serial_, audited_model().ops);
    Sums sums(routed.view.n_rows);
    EXPECT_TRUE(dispatcher.submit(routed.view).ok());
    EXPECT_TRUE(dispatcher.collect(sums.view(), sums.failed).ok());
    return sums;
  }

  terrace::test::Rng rng_{test::kSeed};
  Serial serial_;
  HeldClock clock_;
  AuditedLeg node_{"box1:9000"};
  std::optional<OwnerTable> table_;
  std::optional<HostLeg> host_;
  std::optional<Auditor> auditor_;
  std::optional<Dispatcher> dispatcher_;
};

void flip_a_bit(const LegBatch& batch, std::span<float> slots, std::span<std::uint8_t>) {
  std::uint32_t bits = 0;
  float& last = slots[batch.pairs.size() * kWidth - 1];
  std::memcpy(&bits, &last, sizeof bits);
  bits ^= 1;
  std::memcpy(&last, &bits, sizeof bits);
}

TEST_F(AuditorTest, FractionOne_ChecksEveryPairOfTheNodeAndUsesNoneOfItsSums) {
  start(1);
  ASSERT_TRUE(step(1).ok());
  ASSERT_TRUE(step(5).ok());
  EXPECT_GT(node_.audited.size(), 0u);
  EXPECT_EQ(node_.sum_pairs, 0u);
  EXPECT_TRUE(node_.idle());
}

TEST_F(AuditorTest, TwoHalvesUnderWay_EachIsCheckedAsItself) {
  for (const double fraction : {1.0, 0.3}) {
    start(fraction);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(step_in_halves(7).ok());
    EXPECT_EQ(node_.sum_pairs == 0, fraction == 1);
    EXPECT_TRUE(node_.idle());
  }
}

TEST_F(AuditorTest, WrongInOneHalf_EndsBothAndTheVerdictIsTheError) {
  start(0.3);
  ASSERT_TRUE(step_in_halves(7).ok());
  node_.lie = flip_a_bit;
  const Status found = step_in_halves(7);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kUncertain);
  EXPECT_EQ(dispatcher_->uncertain_since(), 1u);
  EXPECT_EQ(node_.state(), LegState::kWrong);
  EXPECT_TRUE(node_.idle());
  dispatcher_->begin_step();  // nothing is under way
}

// The streams go back to before the first step that may be wrong, whichever of the verdicts came last.
TEST_F(AuditorTest, TwoNodesFoundWrongInTheHalvesOfAStep_TheEarlierDoubtCounts) {
  AuditedLeg other("box2:9000");
  start(0.3, 0, &other);
  ASSERT_TRUE(step_in_halves(7).ok());  // both are clean
  other.lost_in_audits = true;          // of no doubt yet, and of no clean audit either
  ASSERT_TRUE(step_in_halves(7).ok());
  other.lost_in_audits = false;
  // `other` lies in the first half it is asked in, `node_` in the second one only: its verdict comes last.
  std::size_t n_asked = 0;
  other.lie = flip_a_bit;
  node_.lie = [&](const LegBatch& batch, std::span<float> slots, std::span<std::uint8_t> failed) {
    if (batch.n_rows == 8) flip_a_bit(batch, slots, failed), ++n_asked;
  };
  const Status found = step_in_halves(7);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kUncertain);
  EXPECT_EQ(other.state(), LegState::kWrong);
  EXPECT_EQ(node_.state(), LegState::kWrong);
  EXPECT_EQ(n_asked, 1u);
  EXPECT_EQ(dispatcher_->uncertain_since(), 1u);
}

TEST_F(AuditorTest, LargePrompt_IsCheckedInPiecesTwoAtATime) {
  start(1);
  ASSERT_TRUE(step(600, Priority::kPrompt).ok());
  EXPECT_GT(node_.audited.size(), 3 * Auditor::kMostPairs);
  EXPECT_EQ(node_.largest_audit, Auditor::kMostPairs);
  EXPECT_LE(node_.most_open, 2u);
  EXPECT_TRUE(node_.idle());
}

TEST_F(AuditorTest, Fraction_IsTheShareOfPairsAndTheSameEachTime) {
  start(1.0 / 16);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(step(40, Priority::kPrompt).ok());
  const auto first = node_.audited;
  const double share = static_cast<double>(first.size()) / static_cast<double>(first.size() + node_.sum_pairs);
  EXPECT_GT(share, 0.8 / 16);
  EXPECT_LT(share, 1.2 / 16);

  node_.audited.clear();
  rng_.seed(test::kSeed);
  start(1.0 / 16);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(step(40, Priority::kPrompt).ok());
  EXPECT_EQ(node_.audited, first);

  node_.audited.clear();
  rng_.seed(test::kSeed);
  start(1.0 / 16, 1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(step(40, Priority::kPrompt).ok());
  EXPECT_NE(node_.audited, first) << "another seed, other pairs";
}

TEST_F(AuditorTest, RarelyChosenNode_IsCheckedWithItsFirstPairsAndOnceAMinute) {
  start(1e-12);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(step(4).ok());
  EXPECT_EQ(node_.audited.size(), 1u);
  clock_.time += 59s;
  ASSERT_TRUE(step(4).ok());
  EXPECT_EQ(node_.audited.size(), 1u);
  std::set<std::uint32_t> layers;
  for (int i = 0; i < 30; ++i) {
    clock_.time += 60s;
    for (int j = 0; j < 3; ++j) ASSERT_TRUE(step(4).ok());
    ASSERT_EQ(node_.audited.size(), 2u + static_cast<std::size_t>(i));
    layers.insert(std::get<0>(node_.audited.back()));
  }
  EXPECT_EQ(layers.size(), audited_model().n_layers()) << "any layer's turn comes";
}

TEST_F(AuditorTest, OneWrongBit_IsFoundNamedAndPutOut_UncertainSinceTheLastCleanAudit) {
  start(1e-12);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(step(4).ok());  // clean in step 1
  clock_.time += 61s;
  ASSERT_TRUE(step(4).ok());  // and in step 6
  EXPECT_EQ(auditor_->checked_until("box1:9000"), 6u);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(step(4).ok());
  clock_.time += 61s;
  node_.lie = flip_a_bit;
  const Status found = step(4);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kUncertain);
  EXPECT_EQ(dispatcher_->uncertain_since(), 6u);
  EXPECT_EQ(node_.state(), LegState::kWrong);
  const auto [layer, row, expert] = node_.audited.back();
  EXPECT_TRUE(found.error().text().starts_with(fmt::format(
      "box1:9000: computes wrong: its output of expert {} of layer {} (slab slab{}-{})", expert, layer, layer, expert)))
      << found.error().text();
  EXPECT_TRUE(node_.idle());
}

TEST_F(AuditorTest, FractionOne_WrongNodeIsPutOutAndNoSumIsWrong) {
  start(1);
  node_.lie = flip_a_bit;
  const Routed routed(0, 300, Priority::kPrompt, rng_);
  Sums sums(300);
  dispatcher_->begin_step();
  const Status done = layer(routed, sums);
  EXPECT_TRUE(done.ok()) << done.error().text();
  EXPECT_EQ(sums, host_alone(routed));
  EXPECT_EQ(node_.state(), LegState::kWrong);
  EXPECT_TRUE(node_.idle());
}

TEST_F(AuditorTest, RowsSaidToFail_MustFailHereToo) {
  start(1);
  node_.lie = [](const LegBatch& batch, std::span<float>, std::span<std::uint8_t> failed) {
    failed[batch.pairs.front().row] = 1;
  };
  ASSERT_TRUE(step(1).ok());
  EXPECT_EQ(node_.state(), LegState::kWrong);
}

TEST_F(AuditorTest, NodeLostDuringAnAudit_IsNotWrongAndTheSumsAreWhole) {
  start(1);
  node_.lost_in_audits = true;
  const Routed routed(1, 4, Priority::kDecode, rng_);
  Sums sums(4);
  dispatcher_->begin_step();
  ASSERT_TRUE(layer(routed, sums).ok());
  EXPECT_EQ(sums, host_alone(routed));
  EXPECT_EQ(node_.state(), LegState::kOk);
}

TEST_F(AuditorTest, NodeThatDoesNotAnswerAnAudit_IsWaitedForToItsSoftLimitAndIsSuspect) {
  start(1);
  node_.silent_in_audits = true;
  node_.limit = clock_.now() + 90ms;
  const Routed routed(1, 4, Priority::kDecode, rng_);
  Sums sums(4);
  dispatcher_->begin_step();
  ASSERT_TRUE(layer(routed, sums).ok());
  EXPECT_EQ(sums, host_alone(routed));
  EXPECT_EQ(clock_.time, node_.limit);
  EXPECT_EQ(node_.state(), LegState::kSuspect);
  EXPECT_TRUE(node_.idle());
}

TEST_F(AuditorTest, NodeThatRefusesAuditsAndAnswersBatches_IsPutOut) {
  start(1e-12);
  node_.refuse_audits = true;
  Status done;
  int steps = 0;
  while (done.ok() && steps < 10) {
    clock_.time += 61s;
    done = step(4);
    ++steps;
  }
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code(), ErrorCode::kUncertain);
  EXPECT_NE(done.error().text().find("no audits here"), std::string::npos) << done.error().text();
  EXPECT_EQ(steps, 3);
}

}  // namespace auditor_test
}  // namespace terrace::legs
