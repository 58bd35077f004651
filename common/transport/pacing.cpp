#include "common/transport/pacing.h"

#include <algorithm>

namespace terrace::transport {
namespace {

// A stretch goes on until bytes were on their way for so long. The system counts that time in ticks of 1 to 4 ms, and
// the most of all measures counts: of shorter stretches it was 18 % above what the link has.
constexpr std::chrono::milliseconds kLeastBusy{100};

}  // namespace

void LinkRate::add(std::uint64_t bytes_per_second) {
  std::uint64_t before = measured();
  while (before < bytes_per_second && !measured_.compare_exchange_weak(before, bytes_per_second)) {
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

void Pacer::follow(Connection& connection, LinkRate::TimePoint now) {
  const std::uint64_t sent = connection.stats().bytes_sent;
  if (sent != sent_) rate_.sent(place_, sent - sent_, now);
  sent_ = sent;
  if (pace_ == 0) measure(connection, sent, now);
  std::uint64_t pace = 0;
  if (decode_.live(now))
    pace = static_cast<std::uint64_t>(static_cast<double>(rate_.measured()) * kPacedShare) / rate_.senders(now);
  if (pace == pace_) return;
  connection.set_pace(pace);
  pace_ = pace;
  rate_.set_pace(pace);
  stretch_.reset();
}

void Pacer::measure(const Connection& connection, std::uint64_t sent, LinkRate::TimePoint now) {
  if (stretch_ && sent < stretch_->until) return;
  const auto progress = connection.sent_progress();
  const unsigned senders = rate_.senders(now);
  if (progress && stretch_ && stretch_->senders == senders) {
    const std::uint64_t bytes = progress->confirmed_bytes - stretch_->from.confirmed_bytes;
    const auto busy = progress->busy - stretch_->from.busy;
    if (busy < kLeastBusy) {
      stretch_->until = sent + kStretch;
      return;
    }
    // Less than half of what was sent says that most of it is under way: the next stretch will tell.
    if (bytes >= kStretch / 2) rate_.add(rate_of(bytes, busy, now));
  }
  if (progress)
    stretch_ = Stretch{*progress, sent + kStretch, senders, now, rate_.total_sent()};
  else
    stretch_.reset();
}

std::uint64_t Pacer::rate_of(std::uint64_t bytes, std::chrono::microseconds busy, LinkRate::TimePoint now) const {
  const double own = static_cast<double>(bytes) / std::chrono::duration<double>(busy).count();
  if (stretch_->senders == 1) return static_cast<std::uint64_t>(own);
  const double all = static_cast<double>(rate_.total_sent() - stretch_->total) /
                     std::chrono::duration<double>(now - stretch_->since).count();
  return static_cast<std::uint64_t>(std::min(own * stretch_->senders, all));
}

void Pacer::start_again() {
  pace_ = 0;
  sent_ = 0;
  stretch_.reset();
}

}  // namespace terrace::transport
