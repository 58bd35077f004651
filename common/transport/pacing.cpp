#include "common/transport/pacing.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace terrace::transport {
namespace {

// A stretch goes on until bytes were on their way for so long. The system counts that time in ticks of 1 to 4 ms, and
// the most of all measures counts: of shorter stretches it was 18 % above what the link has.
constexpr std::chrono::milliseconds kLeastBusy{100};
// How often, and how finely, it is looked at what decode batches take.
constexpr std::chrono::milliseconds kDecodeWindow{25};
constexpr double kDecodeParts = 32;
// A trial ends when it is measured, and at last after this and the time that two of its stretches take.
constexpr std::chrono::milliseconds kLongestTrial{250};
// A trial that found so much more found something new.
constexpr double kNews = 1.04;
// Of a paced stretch's time, in which bytes have to be on their way: else it was the sender that had none.
constexpr double kAllTheTime = 0.9;
// And in which the peer's window was full: else it was the peer that took no more, not the link.
constexpr double kHardlyEver = 0.1;

double seconds(LinkRate::TimePoint::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void LinkRate::add(std::uint64_t bytes_per_second) {
  std::uint64_t before = measured();
  while (before < bytes_per_second && !measured_.compare_exchange_weak(before, bytes_per_second)) {
  }
}

std::size_t LinkRate::join() {
  std::uint32_t taken = taken_.load(std::memory_order_relaxed);
  for (;;) {
    const auto place = static_cast<std::size_t>(std::countr_one(taken));
    if (place >= kPlaces) return kPlaces;
    if (taken_.compare_exchange_weak(taken, taken | std::uint32_t{1} << place)) return place;
  }
}

// It sends no more: its part is the others' at once.
void LinkRate::leave(std::size_t place) {
  if (place == kPlaces) return;
  last_sent_[place].store(0, std::memory_order_relaxed);
  taken_.fetch_and(~(std::uint32_t{1} << place));
}

void LinkRate::lower(std::uint64_t bytes_per_second) {
  std::uint64_t before = measured();
  while (before > bytes_per_second && !measured_.compare_exchange_weak(before, bytes_per_second)) {
  }
}

unsigned LinkRate::senders(TimePoint now) const {
  unsigned n = 0;
  for (const auto& last : last_sent_) {
    const TimePoint::duration sent(last.load(std::memory_order_relaxed));
    if (sent.count() != 0 && now.time_since_epoch() - sent < kSends) ++n;
  }
  return std::max(1u, n);
}

double LinkRate::share(TimePoint now, bool tries) {
  const TimePoint::rep t = now.time_since_epoch().count();
  if (const TimePoint::rep ends = trial_ends_.load(); ends != 0) {
    if (t < ends) return kTrialShare;
    end_trial(now);
    return kPacedShare;
  }
  TimePoint::rep next = next_trial_.load();
  if (next == 0) {
    next_trial_.compare_exchange_strong(next, t + pause_.load());
  } else if (tries && t >= next && next_trial_.compare_exchange_strong(next, 0)) {
    before_trial_ = measured();
    const std::chrono::duration<double> stretches(2.0 * Pacer::kTrialStretch / static_cast<double>(measured()));
    trial_ends_ = t + (kLongestTrial + std::chrono::duration_cast<TimePoint::duration>(stretches)).count();
    return kTrialShare;
  }
  return kPacedShare;
}

void LinkRate::end_trial(TimePoint now) {
  if (trial_ends_.exchange(0) == 0) return;
  const bool news = static_cast<double>(measured()) > kNews * static_cast<double>(before_trial_.load());
  const TimePoint::duration twice(2 * pause_.load());
  const TimePoint::duration pause = news ? kFirstTrial : std::min<TimePoint::duration>(twice, kLongestPause);
  pause_ = pause.count();
  next_trial_ = (now.time_since_epoch() + (news ? TimePoint::duration(kNextTrial) : pause)).count();
}

void LinkRate::rest() {
  if (next_trial_.load(std::memory_order_relaxed) == 0 && trial_ends_.load(std::memory_order_relaxed) == 0) return;
  trial_ends_ = 0;
  next_trial_ = 0;
  pause_ = TimePoint::duration(kFirstTrial).count();
}

void Pacer::follow(Connection& connection, LinkRate::TimePoint now) {
  const std::uint64_t sent = connection.stats().bytes_sent;
  if (sent != sent_) rate_.sent(place_, sent - sent_, now);
  sent_ = sent;
  if (pace_ == 0 || tries_)
    measure(connection, sent, now);
  else
    look_for_shortfall(connection, sent, now);
  const Allowed own = own_part(allowed(now), now);
  const auto pace = static_cast<std::uint64_t>(own.rate);
  if (pace == pace_) return;
  tries_ = own.trial;
  connection.set_pace(pace);
  pace_ = pace;
  rate_.set_pace(pace);
  stretch_.reset();
  n_short_ = 0;
}

Pacer::Allowed Pacer::allowed(LinkRate::TimePoint now) {
  if (!decode_.live(now)) {
    rate_.rest();
    return {};
  }
  const std::uint64_t measured = rate_.measured();
  if (measured == 0) return {};
  look_at_decode(measured, now);
  const auto link = static_cast<double>(measured);
  const double share = rate_.share(now, most_ >= kTrialShare);
  if (share > kPacedShare) return {share * link, true};
  return {std::max(share * link - decode_rate_, kLeastShare * link), false};
}

Pacer::Allowed Pacer::own_part(const Allowed& all, LinkRate::TimePoint now) const {
  const double part = std::floor(all.rate / rate_.senders(now));
  const double most = std::floor(most_ * static_cast<double>(rate_.measured()));
  return part > most ? Allowed{most, false} : Allowed{part, all.trial};
}

void Pacer::look_at_decode(std::uint64_t measured, LinkRate::TimePoint now) {
  if (now - decode_since_ < kDecodeWindow) return;
  const std::uint64_t total = decode_.total_sent();
  const double rate =
      static_cast<double>(total - decode_before_) / std::chrono::duration<double>(now - decode_since_).count();
  // Rounded up to parts of the link, so that a pace is not set anew for every little change.
  const double part = static_cast<double>(measured) / kDecodeParts;
  decode_rate_ = std::ceil(rate / part) * part;
  decode_since_ = now;
  decode_before_ = total;
}

void Pacer::measure(const Connection& connection, std::uint64_t sent, LinkRate::TimePoint now) {
  if (stretch_ && sent < stretch_->until) return;
  const std::uint64_t length = tries_ ? kTrialStretch : kStretch;
  const auto progress = connection.sent_progress();
  const unsigned senders = rate_.senders(now);
  if (progress && stretch_ && stretch_->senders == senders) {
    const std::uint64_t bytes = progress->confirmed_bytes - stretch_->from.confirmed_bytes;
    const auto busy = progress->busy - stretch_->from.busy;
    if (busy < kLeastBusy) {
      stretch_->until = sent + length;
      return;
    }
    // Less than half of what was sent says that most of it is under way: the next stretch will tell.
    if (bytes >= length / 2) {
      rate_.add(rate_of(bytes, busy, now));
      if (tries_) rate_.end_trial(now);
    }
  }
  if (progress)
    stretch_ = begin_stretch(*progress, sent + length, senders, now);
  else
    stretch_.reset();
}

Pacer::Stretch Pacer::begin_stretch(const SentProgress& progress, std::uint64_t until, unsigned senders,
                                    LinkRate::TimePoint now) const {
  return {progress, until, senders, now, rate_.total_sent(), decode_.total_sent()};
}

void Pacer::look_for_shortfall(const Connection& connection, std::uint64_t sent, LinkRate::TimePoint now) {
  if (stretch_ && (sent < stretch_->until || now - stretch_->since < kLeastBusy)) return;
  const auto progress = connection.sent_progress();
  if (progress && stretch_) count_shortfall(fell_short(*progress, now), now);
  if (progress)
    stretch_ = begin_stretch(*progress, sent + kStretch, 1, now);
  else
    stretch_.reset();
}

void Pacer::count_shortfall(bool short_of_pace, LinkRate::TimePoint now) {
  if (!short_of_pace) {
    n_short_ = 0;
    return;
  }
  const std::uint64_t moved = rate_.total_sent() - stretch_->total + decode_.total_sent() - stretch_->decode;
  const auto took = static_cast<std::uint64_t>(static_cast<double>(moved) / seconds(now - stretch_->since));
  most_in_short_ = std::max(n_short_ == 0 ? 0 : most_in_short_, took);
  if (++n_short_ < kShortStretches) return;
  n_short_ = 0;
  rate_.lower(most_in_short_);
}

bool Pacer::fell_short(const SentProgress& progress, LinkRate::TimePoint now) const {
  if (progress.delivery_rate == 0 || progress.sender_limited) return false;
  const double time = seconds(now - stretch_->since);
  const double least = kShort * static_cast<double>(pace_);
  const auto confirmed = static_cast<double>(progress.confirmed_bytes - stretch_->from.confirmed_bytes);
  return seconds(progress.busy - stretch_->from.busy) >= kAllTheTime * time &&
         seconds(progress.receiver_limited - stretch_->from.receiver_limited) < kHardlyEver * time &&
         static_cast<double>(progress.delivery_rate) < least && confirmed < least * time;
}

std::uint64_t Pacer::rate_of(std::uint64_t bytes, std::chrono::microseconds busy, LinkRate::TimePoint now) const {
  const double own = static_cast<double>(bytes) / std::chrono::duration<double>(busy).count();
  if (stretch_->senders == 1) return static_cast<std::uint64_t>(own);
  const double all = static_cast<double>(rate_.total_sent() - stretch_->total) / seconds(now - stretch_->since);
  return static_cast<std::uint64_t>(std::min(own * stretch_->senders, all));
}

void Pacer::start_again() {
  pace_ = 0;
  tries_ = false;
  sent_ = 0;
  stretch_.reset();
  n_short_ = 0;
}

}  // namespace terrace::transport
