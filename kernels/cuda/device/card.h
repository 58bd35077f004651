// A card and the part of its memory that is ours: taken once, when it is opened, so that running out is refused before
// anything is loaded and never in the middle of an answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "kernels/cuda/device/stream.h"

namespace terrace::kernels::cuda {

// kUnsupported: no driver, one that is too old, or no card; the text says which.
Result<std::vector<CardInfo>> list_cards();

// Host memory that the card reads and writes directly. Move only; freed by the destructor.
class PinnedBuffer {
 public:
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  friend class Card;
  struct Free {
    void operator()(std::byte* data) const;
  };
  PinnedBuffer(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// Threads: take() and the make functions by one thread at a time.
class Card {
 public:
  // What begins in card memory begins at a multiple of this.
  static constexpr std::size_t kAlignment = 256;

  // Takes `budget_bytes` of the card's memory. kNotFound: no such card. kOutOfMemory: less is free; the text gives
  // budget, free and total. kUnsupported: as list_cards(), or a card for which this build holds no code.
  static Result<std::unique_ptr<Card>> open(int index, std::uint64_t budget_bytes);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  const CardInfo& info() const { return info_; }
  std::uint64_t budget_bytes() const { return budget_; }
  std::uint64_t used_bytes() const { return used_; }

  // `bytes` of the budget, for good: given back with the card. kOutOfMemory: names `what`, what it needs and what is
  // left.
  Result<std::byte*> take(std::uint64_t bytes, std::string_view what);
  // Everything taken since used_bytes() was `used` is free again; nothing may use it any more.
  void release_to(std::uint64_t used);

  Result<Stream> make_stream() const;
  Result<Event> make_event() const;
  // Whose synchronize() sleeps, where others' may keep a CPU busy; it knows no time.
  Result<Event> make_event_to_sleep_for() const;
  Result<PinnedBuffer> make_pinned(std::size_t bytes) const;

 private:
  Card(CardInfo info, std::byte* memory, std::uint64_t budget);
  Result<Event> make_event(unsigned flags) const;

  CardInfo info_;
  std::byte* memory_;
  std::uint64_t budget_;
  std::uint64_t used_ = 0;
};

}  // namespace terrace::kernels::cuda
