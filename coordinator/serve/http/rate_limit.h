// How many requests a client may make: a token bucket for each.
//
// One owner thread. Time is given by the caller.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace terrace::serve::http {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // per_second: 0 allows everything. burst: requests at once, at least 1.
  RateLimit(double per_second, double burst);

  // Takes one request of `client`, if it may have one now.
  // Seconds until it may: 0 if it was taken.
  double take(const std::string& client, Clock::time_point now);

  std::size_t clients() const { return buckets_.size(); }
  // Clients that are remembered; beyond, those that are back at a full bucket are forgotten, and if there is none, the
  // half that is longest unseen: their next request then finds a full bucket.
  static constexpr std::size_t kMaxClients = 4096;

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point at;  // when `tokens` was so
  };
  double tokens_at(const Bucket& bucket, Clock::time_point now) const;
  void make_room(Clock::time_point now);

  double per_second_;
  double burst_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace terrace::serve::http
