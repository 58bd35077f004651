// A card's slab memory as a store's: what was taken of the card when it was opened, cut into runs of pages.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "common/arena/page_pool.h"
#include "common/arena/slab_store.h"
#include "kernels/card/expert_card.h"

namespace terrace::node {

class CardMemory final : public arena::SlabMemory {
 public:
  // `card` outlives it. kInternal: the card failed.
  static Result<std::unique_ptr<CardMemory>> make(kernels::ExpertCard& card);
  ~CardMemory() override;

  // What a store over it may promise.
  std::uint64_t total_bytes() const { return total_bytes_; }

  bool is_host() const override { return false; }
  // kOutOfMemory: no run of free pages is so long. Nothing is touched: the card gave the memory when it was opened.
  Result<std::span<std::byte>> map(std::uint64_t bytes, FunctionRef<bool()> go_on) override;
  void unmap(std::span<std::byte> memory) override;
  Status write(std::byte* to, std::span<const std::byte> data) override;

 private:
  CardMemory(std::span<std::byte> memory, std::unique_ptr<kernels::CardWriter> writer);

  const std::uint64_t total_bytes_;
  std::mutex pool_mutex_;
  arena::PagePool pool_;  // guarded by pool_mutex_
  std::mutex writer_mutex_;
  const std::unique_ptr<kernels::CardWriter> writer_;  // guarded by writer_mutex_
};

}  // namespace terrace::node
