// What benchmarks of kernels share: a card's memory full of random weights, and times of calls on its stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "kernels/cuda/device/card.h"

namespace terrace::test {

class BenchCard {
 public:
  static constexpr std::uint64_t kWeightBytes = std::uint64_t{1} << 30;

  static Result<BenchCard> open(int index, std::uint64_t budget) {
    using namespace kernels::cuda;
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<Card> card, Card::open(index, budget));
    TERRACE_ASSIGN_OR_RETURN(Stream stream, card->make_stream());
    TERRACE_ASSIGN_OR_RETURN(Event begin, card->make_event());
    TERRACE_ASSIGN_OR_RETURN(Event end, card->make_event());
    BenchCard bench(std::move(card), std::move(stream), std::move(begin), std::move(end));
    TERRACE_RETURN_IF_ERROR(bench.make_weights());
    return bench;
  }

  kernels::cuda::Card& card() { return *card_; }
  const kernels::cuda::Stream& stream() const { return stream_; }
  std::byte* weights() const { return weights_; }

  Result<std::byte*> take(std::uint64_t bytes) { return card_->take(bytes, "a benchmark"); }
  // Room for n values of T, all bytes 0.
  template <class T>
  Result<T*> room(std::uint64_t n) {
    TERRACE_ASSIGN_OR_RETURN(std::byte* const at, take(n * sizeof(T)));
    TERRACE_RETURN_IF_ERROR(stream_.fill(at, 0, n * sizeof(T)));
    return reinterpret_cast<T*>(at);
  }
  template <class T>
  Result<T*> upload(const std::vector<T>& values) {
    TERRACE_ASSIGN_OR_RETURN(std::byte* const at, take(values.size() * sizeof(T)));
    TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(at, values.data(), values.size() * sizeof(T)));
    TERRACE_RETURN_IF_ERROR(stream_.synchronize());
    return reinterpret_cast<T*>(at);
  }
  // n values about 0.
  Result<float*> floats(std::uint64_t n) {
    constexpr std::size_t kMade = std::size_t{1} << 18;
    std::normal_distribution<float> bell;
    std::vector<float> values(std::min<std::uint64_t>(n, kMade));
    for (float& value : values) value = bell(rng_);
    TERRACE_ASSIGN_OR_RETURN(float* const at, room<float>(n));
    for (std::uint64_t done = 0; done < n; done += values.size())
      TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(at + done, values.data(),
                                                   std::min<std::uint64_t>(values.size(), n - done) * sizeof(float)));
    TERRACE_RETURN_IF_ERROR(stream_.synchronize());
    return at;
  }

  // Median microseconds of `call`, after two that do not count.
  Result<double> microseconds(FunctionRef<Status()> call, int repeats = 11) {
    std::vector<double> times;
    for (int i = -2; i < repeats; ++i) {
      TERRACE_RETURN_IF_ERROR(stream_.record(begin_));
      TERRACE_RETURN_IF_ERROR(call());
      TERRACE_RETURN_IF_ERROR(stream_.record(end_));
      TERRACE_RETURN_IF_ERROR(stream_.synchronize());
      TERRACE_ASSIGN_OR_RETURN(const float ms, end_.milliseconds_since(begin_));
      if (i >= 0) times.push_back(ms * 1e3);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }
  // Of one of n calls that are captured and replayed together.
  Result<double> microseconds_in_graph(FunctionRef<Status(int)> call, int n = 64) {
    TERRACE_ASSIGN_OR_RETURN(const kernels::cuda::Graph graph, kernels::cuda::Graph::capture(stream_, [&]() -> Status {
                               for (int i = 0; i < n; ++i) TERRACE_RETURN_IF_ERROR(call(i));
                               return {};
                             }));
    TERRACE_ASSIGN_OR_RETURN(const double us, microseconds([&] { return graph.launch(stream_); }));
    return us / n;
  }
  // Bytes that a copy on the card reads and writes in a second.
  Result<double> copy_rate() {
    const std::uint64_t used = card_->used_bytes();
    TERRACE_ASSIGN_OR_RETURN(std::byte* const to, take(kWeightBytes));
    TERRACE_ASSIGN_OR_RETURN(const double us,
                             microseconds([&] { return stream_.copy_on_card(to, weights_, kWeightBytes); }));
    card_->release_to(used);
    return 2.0 * kWeightBytes / us * 1e6;
  }

 private:
  BenchCard(std::unique_ptr<kernels::cuda::Card> card, kernels::cuda::Stream stream, kernels::cuda::Event begin,
            kernels::cuda::Event end)
      : card_(std::move(card)), stream_(std::move(stream)), begin_(std::move(begin)), end_(std::move(end)) {}

  Status make_weights() {
    constexpr std::uint64_t kMade = std::uint64_t{1} << 26;
    TERRACE_ASSIGN_OR_RETURN(weights_, take(kWeightBytes));
    std::vector<std::uint64_t> random(kMade / sizeof(std::uint64_t));
    std::mt19937_64 words(20281);
    for (std::uint64_t& word : random) word = words();
    TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(weights_, random.data(), kMade));
    for (std::uint64_t at = kMade; at < kWeightBytes; at += kMade)
      TERRACE_RETURN_IF_ERROR(stream_.copy_on_card(weights_ + at, weights_, kMade));
    return stream_.synchronize();
  }

  std::unique_ptr<kernels::cuda::Card> card_;
  kernels::cuda::Stream stream_;
  kernels::cuda::Event begin_, end_;
  std::byte* weights_ = nullptr;
  std::mt19937 rng_{20282};
};

}  // namespace terrace::test
