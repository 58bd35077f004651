#include "coordinator/serve/http/rate_limit.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace terrace::serve::http {

RateLimit::RateLimit(double per_second, double burst) : per_second_(per_second), burst_(std::max(burst, 1.0)) {}

double RateLimit::take(const std::string& client, Clock::time_point now) {
  if (per_second_ <= 0) return 0;
  auto found = buckets_.find(client);
  if (found == buckets_.end()) {
    if (buckets_.size() >= kMaxClients) make_room(now);
    found = buckets_.emplace(client, Bucket{burst_, now}).first;
  }
  Bucket& bucket = found->second;
  bucket = {tokens_at(bucket, now), now};
  if (bucket.tokens < 1) return (1 - bucket.tokens) / per_second_;
  bucket.tokens -= 1;
  return 0;
}

double RateLimit::tokens_at(const Bucket& bucket, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - bucket.at).count();
  return std::min(burst_, bucket.tokens + seconds * per_second_);
}

void RateLimit::make_room(Clock::time_point now) {
  std::erase_if(buckets_, [&](const auto& entry) { return tokens_at(entry.second, now) >= burst_; });
  if (buckets_.size() < kMaxClients) return;
  std::vector<Clock::time_point> seen;
  for (const auto& [client, bucket] : buckets_) seen.push_back(bucket.at);
  const auto middle = seen.begin() + static_cast<std::ptrdiff_t>(seen.size() / 2);
  std::ranges::nth_element(seen, middle);
  std::erase_if(buckets_, [&](const auto& entry) { return entry.second.at <= *middle; });
}

}  // namespace terrace::serve::http
