#include "tier_node/session/card_memory.h"

#include <fmt/core.h>

#include <utility>

#include "common/base/check.h"

namespace terrace::node {

Result<std::unique_ptr<CardMemory>> CardMemory::make(kernels::ExpertCard& card) {
  TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::CardWriter> writer, card.make_writer());
  const std::span<std::byte> memory = card.slab_memory();
  const std::uint64_t pages = memory.size() / arena::kPageBytes * arena::kPageBytes;
  return std::unique_ptr<CardMemory>(new CardMemory(memory.first(pages), std::move(writer)));
}

CardMemory::CardMemory(std::span<std::byte> memory, std::unique_ptr<kernels::CardWriter> writer)
    : total_bytes_(memory.size()), writer_(std::move(writer)) {
  pool_.add(memory);
}

// The pool must not give a card's addresses back to the system.
CardMemory::~CardMemory() {
  TERRACE_CHECK(pool_.free_bytes() == total_bytes_, "a store outlives the card memory that it cut up");
  (void)pool_.remove(total_bytes_);
}

Result<std::span<std::byte>> CardMemory::map(std::uint64_t bytes, FunctionRef<bool()>) {
  const std::lock_guard lock(pool_mutex_);
  if (bytes <= pool_.free_bytes())
    if (const auto run = pool_.take(bytes)) return *run;
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("the card has no run of {} bytes left: {} are free, in pieces", bytes, pool_.free_bytes()));
}

void CardMemory::unmap(std::span<std::byte> memory) {
  const std::lock_guard lock(pool_mutex_);
  pool_.give(memory);
}

Status CardMemory::write(std::byte* to, std::span<const std::byte> data) {
  const std::lock_guard lock(writer_mutex_);
  return writer_->write(to, data);
}

}  // namespace terrace::node
