#include "common/transport/pacing.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/transport/link/link.h"
#include "tests/unit/common/transport/pipe.h"

namespace terrace::transport {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kRate = 100'000'000;  // bytes a second that a link takes

// A connection of which a test says what it sent and what was confirmed, and that notes its pace.
class Told final : public test::Pipe {
 public:
  void send_at(std::uint64_t bytes, std::uint64_t bytes_per_second) {
    sent_bytes += bytes;
    progress.confirmed_bytes += bytes;
    progress.busy += std::chrono::microseconds(bytes * 1'000'000 / bytes_per_second);
  }
  void set_pace(std::uint64_t bytes_per_second) override { paces.push_back(bytes_per_second); }
  std::optional<SentProgress> sent_progress() const override { return progress; }
  TransportStats stats() const override { return {.bytes_sent = sent_bytes}; }

  std::uint64_t sent_bytes = 0;
  SentProgress progress;
  std::vector<std::uint64_t> paces;
};

class Pacing : public testing::Test {
 protected:
  // The connection sends so much, and its owner looks after each part of it.
  void send(Told& connection, Pacer& pacer, std::uint64_t bytes, std::uint64_t rate) {
    constexpr std::uint64_t kPart = 1 << 20;
    for (std::uint64_t sent = 0; sent < bytes; sent += kPart) {
      connection.send_at(kPart, rate);
      now_ += std::chrono::nanoseconds(kPart * 1'000'000'000 / rate);
      pacer.follow(connection, now_);
    }
  }

  DecodeActivity decode_;
  LinkRate rate_;
  Told bulk_, weights_;
  LinkRate::TimePoint now_{1h};
};

TEST_F(Pacing, WhileStepsLive_FourFifthsOfWhatWasMeasured_ElseNone) {
  Pacer pacer(decode_, rate_);
  send(weights_, pacer, 4 * Pacer::kStretch, kRate);
  EXPECT_NEAR(static_cast<double>(rate_.measured()), kRate, kRate * 0.001);
  EXPECT_TRUE(weights_.paces.empty()) << "no step was seen";
  decode_.seen(now_);
  pacer.follow(weights_, now_);
  ASSERT_EQ(weights_.paces.size(), 1u);
  EXPECT_NEAR(static_cast<double>(weights_.paces[0]), 0.8 * kRate, kRate * 0.001);
  EXPECT_EQ(rate_.pace(), weights_.paces[0]);
  pacer.follow(weights_, now_ + DecodeActivity::kLives / 2);
  EXPECT_EQ(weights_.paces.size(), 1u) << "set once";
  now_ += DecodeActivity::kLives;
  pacer.follow(weights_, now_);
  ASSERT_EQ(weights_.paces.size(), 2u);
  EXPECT_EQ(weights_.paces[1], 0u);
  EXPECT_EQ(rate_.pace(), 0u);
}

// Both directions of a step share the link with what is paced: together they leave it some air.
TEST_F(Pacing, WhatDecodeBatchesTake_IsTakenOffThePace_DownToAnEighth) {
  Pacer pacer(decode_, rate_);
  send(weights_, pacer, 4 * Pacer::kStretch, kRate);
  for (const auto& [part, paced] : {std::pair{0.25, 0.55}, {0.9, 0.125}, {0.0, 0.8}}) {
    for (int ms = 0; ms < 60; ++ms) {
      now_ += 1ms;
      decode_.seen(now_);
      decode_.sent(static_cast<std::uint64_t>(part * kRate / 1000));
      weights_.send_at(1000, kRate);
      pacer.follow(weights_, now_);
    }
    EXPECT_NEAR(static_cast<double>(weights_.paces.back()), paced * kRate, 0.035 * kRate) << part;
  }
}

// What moves for later is given so much of the link and no more, by the clock that a test moves: also when what all may
// send is tried anew, and when decode batches leave much of the link.
TEST_F(Pacing, WithAShareOfItsOwn_NoMoreThanThatWhileStepsLive) {
  Pacer pacer(decode_, rate_);
  send(weights_, pacer, 4 * Pacer::kStretch, kRate);
  pacer.set_most(0.25);
  std::uint64_t sent = 0;
  const auto begin = now_;
  while (now_ - begin < LinkRate::kFirstTrial + 1s) {  // a trial is among them
    now_ += 1ms;
    decode_.seen(now_);
    pacer.follow(weights_, now_);
    ASSERT_FALSE(weights_.paces.empty());
    const std::uint64_t bytes = weights_.paces.back() / 1000;
    weights_.send_at(bytes, kRate);
    sent += bytes;
  }
  EXPECT_NEAR(static_cast<double>(sent), 0.25 * kRate * 6, 0.001 * kRate);
  EXPECT_EQ(weights_.paces.size(), 1u);
  Pacer bulk(decode_, rate_);
  bulk_.send_at(1000, kRate);
  bulk.follow(bulk_, now_);
  EXPECT_NEAR(static_cast<double>(bulk_.paces.back()), kTrialShare * kRate / 2, 0.001 * kRate)
      << "the trial is left to those that can take part";
  now_ += DecodeActivity::kLives;
  pacer.follow(weights_, now_);
  EXPECT_EQ(weights_.paces.back(), 0u) << "no step is in its way";
}

TEST_F(Pacing, NothingMeasured_NothingPaced) {
  Pacer pacer(decode_, rate_);
  decode_.seen(now_);
  send(weights_, pacer, Pacer::kStretch / 2, kRate);
  EXPECT_EQ(rate_.measured(), 0u);
  EXPECT_TRUE(weights_.paces.empty());
}

// What others took, or the pace itself, is no measure of the link.
TEST_F(Pacing, OfSeveralMeasuresTheMostCounts_AndNoneIsTakenWhilePaced) {
  Pacer pacer(decode_, rate_);
  send(weights_, pacer, 5 * Pacer::kStretch, kRate);
  const std::uint64_t measured = rate_.measured();
  send(weights_, pacer, 5 * Pacer::kStretch, kRate / 3);
  EXPECT_EQ(rate_.measured(), measured);
  decode_.seen(now_);
  pacer.follow(weights_, now_);
  for (int i = 0; i < 4; ++i) {
    decode_.seen(now_);
    send(weights_, pacer, 8 * Pacer::kStretch, 5 * kRate);
  }
  EXPECT_EQ(rate_.measured(), measured);
}

// A node has a pacer for each connection that it accepts, and connections are replaced as long as a session lives.
TEST_F(Pacing, ConnectionsReplacedOftenerThanThereArePlaces_CountAsThoseThatAreThere) {
  Pacer weights(decode_, rate_);
  for (int i = 0; i < 40; ++i) {
    Pacer bulk(decode_, rate_);
    weights_.send_at(1000, kRate);
    weights.follow(weights_, now_);
    bulk_.send_at(1000, kRate);
    bulk.follow(bulk_, now_);
    ASSERT_EQ(rate_.senders(now_), 2u) << "after " << i << " were replaced";
  }
  weights_.send_at(1000, kRate);
  weights.follow(weights_, now_);
  EXPECT_EQ(rate_.senders(now_), 1u) << "one that has ended sends no more";
}

TEST_F(Pacing, MoreConnectionsThanPlaces_AreCountedAsFarAsThereArePlaces) {
  std::vector<std::unique_ptr<Pacer>> pacers;
  for (int i = 0; i < 40; ++i) {
    pacers.push_back(std::make_unique<Pacer>(decode_, rate_));
    bulk_.send_at(1000, kRate);
    pacers.back()->follow(bulk_, now_);
  }
  EXPECT_EQ(rate_.senders(now_), 17u);
  pacers.clear();
  const Pacer next(decode_, rate_);
  now_ += LinkRate::kSends;
  EXPECT_EQ(rate_.senders(now_), 1u);
}

TEST_F(Pacing, ConnectionsThatSendAtOnce_ShareIt) {
  Pacer bulk(decode_, rate_), weights(decode_, rate_);
  send(weights_, weights, 4 * Pacer::kStretch, kRate);
  decode_.seen(now_);
  bulk_.send_at(1000, kRate);
  bulk.follow(bulk_, now_);
  weights_.send_at(1000, kRate);
  weights.follow(weights_, now_);
  ASSERT_FALSE(bulk_.paces.empty());
  ASSERT_FALSE(weights_.paces.empty());
  EXPECT_LE(bulk_.paces.back() + weights_.paces.back(), static_cast<std::uint64_t>(kRate * 0.801));
  // Bulk is silent: its part is the other's, as soon as that looks again.
  now_ += LinkRate::kSends;
  decode_.seen(now_);
  weights_.send_at(1000, kRate);
  weights.follow(weights_, now_);
  EXPECT_NEAR(static_cast<double>(weights_.paces.back()), 0.8 * kRate, kRate * 0.001);
}

// Together they take the link: each sees half of it.
TEST_F(Pacing, ConnectionsThatSendAtOnce_MeasureTheLinkTogether) {
  Pacer bulk(decode_, rate_), weights(decode_, rate_);
  for (int i = 0; i < 40; ++i) {
    bulk_.send_at(1 << 20, kRate / 2);
    weights_.send_at(1 << 20, kRate / 2);
    now_ += std::chrono::nanoseconds((std::uint64_t{2} << 20) * 1'000'000'000 / kRate);
    bulk.follow(bulk_, now_);
    weights.follow(weights_, now_);
  }
  EXPECT_NEAR(static_cast<double>(rate_.measured()), kRate, kRate * 0.03);
}

// In turn, as the halves of a step do: each has the whole link, and both are seen to send.
TEST_F(Pacing, ConnectionsThatSendInTurn_DoNotMeasureTheLinkTwice) {
  Pacer bulk(decode_, rate_), weights(decode_, rate_);
  for (int i = 0; i < 40; ++i) {
    send(bulk_, bulk, 1 << 20, kRate);
    send(weights_, weights, 1 << 20, kRate);
  }
  EXPECT_GT(rate_.measured(), 0u);
  EXPECT_LE(static_cast<double>(rate_.measured()), kRate * 1.1);
}

// A link of kRate that others had while the first measure was taken, and steps that go on from then: told by how much
// of the time the connection was let send more than the link takes.
struct Steps {
  std::uint64_t measured = 0;
  double share_of_time_above = 0;
};
Steps steps_go_on(std::uint64_t first_measure, std::chrono::seconds time) {
  DecodeActivity decode;
  LinkRate rate;
  Told weights;
  Pacer pacer(decode, rate);
  LinkRate::TimePoint now{1h};
  rate.add(first_measure);
  constexpr std::chrono::milliseconds kTick{5};
  int above = 0, ticks = 0;
  for (const auto end = now + time; now < end; now += kTick, ++ticks) {
    decode.seen(now);
    pacer.follow(weights, now);
    const std::uint64_t pace = weights.paces.back();
    above += pace > kRate;
    weights.send_at(std::min(pace, kRate) / 200, std::min(pace, kRate));  // in 5 ms
  }
  return {rate.measured(), static_cast<double>(above) / ticks};
}

TEST_F(Pacing, FirstMeasureTooLow_RisesToTheLinkWhileStepsGoOn) {
  for (const std::uint64_t first : {kRate / 50, kRate / 5, kRate - kRate / 8}) {
    const Steps steps = steps_go_on(first, 60s);
    EXPECT_GE(static_cast<double>(steps.measured), 0.88 * kRate) << first;
    EXPECT_LE(static_cast<double>(steps.measured), 1.01 * kRate) << first;
  }
}

TEST_F(Pacing, RightMeasure_StaysAndIsSeldomTried) {
  const Steps steps = steps_go_on(kRate, 600s);
  EXPECT_LE(static_cast<double>(steps.measured), 1.01 * kRate);
  EXPECT_GT(steps.share_of_time_above, 0) << "it is tried";
  EXPECT_LT(steps.share_of_time_above, 0.005);
}

// A link of kRate, thought to take more, and steps that go on while a connection has always something to send.
class LinkBelowItsMeasure : public Pacing {
 protected:
  // Of the time bytes are on their way in `busy`; the link gives this connection so much.
  void steps_go_on(Pacer& pacer, std::chrono::milliseconds time, double busy = 1, std::uint64_t link = kRate) {
    for (const auto end = now_ + time; now_ < end; now_ += 1ms) {
      decode_.seen(now_);
      pacer.follow(weights_, now_);
      const std::uint64_t bytes = std::min(weights_.paces.back(), link) / 1000;
      weights_.sent_bytes += bytes;
      weights_.progress.confirmed_bytes += bytes;
      weights_.progress.busy += std::chrono::microseconds(static_cast<int>(busy * 1000));
      weights_.progress.delivery_rate = bytes * 1000;
      after_each_ms_(weights_.progress);
    }
  }
  // Of steps that go on beside a link of kRate thought to take five times as much.
  std::uint64_t measured_where(std::function<void(SentProgress&)> after_each_ms) {
    after_each_ms_ = std::move(after_each_ms);
    rate_.add(5 * kRate);
    Pacer pacer(decode_, rate_);
    steps_go_on(pacer, 2s);
    return rate_.measured();
  }

  // What the system says besides.
  std::function<void(SentProgress&)> after_each_ms_ = [](SentProgress&) {};
};

TEST_F(LinkBelowItsMeasure, PacedTransfersBringItDownToTheLink) {
  for (const double most : {kTrialShare, 0.25}) {
    rate_.add(5 * kRate);
    Pacer pacer(decode_, rate_);
    pacer.set_most(most);
    steps_go_on(pacer, 3s);
    EXPECT_LE(static_cast<double>(weights_.paces.back()), 0.81 * kRate) << most;
    EXPECT_GE(static_cast<double>(rate_.measured()), 0.99 * kRate) << most;
  }
}

// A link that stumbles: the best of the stretches counts, and what decode batches moved counts too.
TEST_F(LinkBelowItsMeasure, FallsToTheMostThatWasMoved) {
  rate_.add(5 * kRate);
  Pacer pacer(decode_, rate_);
  pacer.set_most(0.25);
  steps_go_on(pacer, 110ms, 1, kRate / 2);
  steps_go_on(pacer, 110ms, 1, kRate);
  decode_.sent(kRate / 100);
  steps_go_on(pacer, 400ms, 1, kRate / 2);
  EXPECT_GE(static_cast<double>(rate_.measured()), 0.9 * kRate);
  EXPECT_LE(static_cast<double>(rate_.measured()), 1.1 * kRate);
}

// Fewer than kShortStretches; a sender that has nothing to send; a link that gives what it is asked for.
TEST_F(LinkBelowItsMeasure, WhatShowsNothing_ChangesNothing) {
  rate_.add(2 * kRate);
  Pacer pacer(decode_, rate_);
  steps_go_on(pacer, 100ms, 1, 4 * kRate);
  for (int i = 0; i < 4; ++i) {
    steps_go_on(pacer, 110ms);  // of no more than two stretches more than a quarter
    steps_go_on(pacer, 310ms, 1, 4 * kRate);
  }
  steps_go_on(pacer, 2s, 0.8);
  EXPECT_EQ(rate_.measured(), 2 * kRate);
}

// A node whose thread opens frames slowly: bytes are on their way, and wait for its window.
TEST_F(LinkBelowItsMeasure, ReceiverHeldItUp_NothingIsLowered) {
  EXPECT_EQ(measured_where([](SentProgress& progress) { progress.receiver_limited = progress.busy; }), 5 * kRate);
  EXPECT_EQ(measured_where([](SentProgress& progress) { progress.receiver_limited = progress.busy / 8; }), 5 * kRate);
}

// A sender that wakes late and whose round trip is as long: bytes are on their way, and not as many as might be.
TEST_F(LinkBelowItsMeasure, SenderHadNothingReady_NothingIsLowered) {
  EXPECT_EQ(measured_where([](SentProgress& progress) { progress.sender_limited = true; }), 5 * kRate);
}

TEST_F(LinkBelowItsMeasure, DeliveredAtThePaceOrUnknown_NothingIsLowered) {
  EXPECT_EQ(measured_where([](SentProgress& progress) { progress.delivery_rate = 4 * kRate; }), 5 * kRate);
  EXPECT_EQ(measured_where([](SentProgress& progress) { progress.delivery_rate = 0; }), 5 * kRate);
}

// As a link may: the window is full for a moment.
TEST_F(LinkBelowItsMeasure, ReceiverHeldItUpForAMoment_FallsAllTheSame) {
  const std::uint64_t measured =
      measured_where([](SentProgress& progress) { progress.receiver_limited = progress.busy / 20; });
  EXPECT_LE(measured, kRate + kRate / 10);
}

TEST_F(Pacing, AnotherConnectionInItsPlace_IsPacedTo) {
  Pacer pacer(decode_, rate_);
  send(weights_, pacer, 4 * Pacer::kStretch, kRate);
  decode_.seen(now_);
  pacer.follow(weights_, now_);
  Told fresh;
  pacer.start_again();
  pacer.follow(fresh, now_);
  ASSERT_EQ(fresh.paces.size(), 1u);
  EXPECT_EQ(fresh.paces[0], weights_.paces.back());
}

TEST(BusyPoll, WhereWaitsBlock_RefusedByName) {
  LinkOptions options;
  EXPECT_TRUE(check_busy_poll(options, Waiting::kBlock).ok());
  options.busy_poll = 20;
  EXPECT_TRUE(check_busy_poll(options, Waiting::kSpinThenPark).ok());
  const Status refused = check_busy_poll(options, Waiting::kBlock);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("--busy-poll 20"), std::string::npos) << refused.error().text();
}

}  // namespace
}  // namespace terrace::transport
