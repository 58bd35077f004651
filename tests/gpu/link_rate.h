// The rate at which a card takes bytes from pinned memory, for benchmarks that put theirs beside it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/base/result.h"
#include "kernels/cuda/device/card.h"

namespace terrace::test {

// Bytes a second from pinned memory to the card: the limit of loading from the page cache.
inline Result<double> measure_link(int index) {
  constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
  TERRACE_ASSIGN_OR_RETURN(const auto card, kernels::cuda::Card::open(index, kBytes));
  TERRACE_ASSIGN_OR_RETURN(const kernels::cuda::Stream stream, card->make_stream());
  TERRACE_ASSIGN_OR_RETURN(const kernels::cuda::PinnedBuffer from, card->make_pinned(kBytes));
  TERRACE_ASSIGN_OR_RETURN(std::byte* const to, card->take(kBytes, "a copy"));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_RETURN_IF_ERROR(stream.copy_to_card(to, from.data(), kBytes));
    TERRACE_RETURN_IF_ERROR(stream.synchronize());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kBytes) / elapsed.count());
  }
  return best;
}

}  // namespace terrace::test
