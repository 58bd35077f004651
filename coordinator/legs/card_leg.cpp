#include "coordinator/legs/card_leg.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>

#include "common/arena/slab_store.h"
#include "common/base/time.h"

namespace terrace::legs {
namespace {

constexpr std::uint64_t kPiece = kernels::CardWriter::kPieceBytes;
// Of one expert, by whose number a card's kernels are chosen.
constexpr std::uint16_t kTrialRows[] = {1, 2, 4, 8, 16};

constexpr std::uint64_t round_to_parts(std::uint64_t bytes) {
  return (bytes + arena::kPartAlignment - 1) / arena::kPartAlignment * arena::kPartAlignment;
}

}  // namespace

std::string card_leg_name(int index) { return fmt::format("card{}", index); }

std::uint64_t card_slab_bytes(const kernels::ExpertShape& shape) {
  return arena::SlabSizes{shape.gate_bytes(), shape.up_bytes(), shape.down_bytes(), {}}.stored_bytes();
}

Result<std::unique_ptr<CardLeg>> CardLeg::make(kernels::ExpertCard& card, std::span<std::byte> memory,
                                               const OwnerTable& owners, std::size_t leg,
                                               const std::vector<kernels::ExpertKernels>& kernels, int shift,
                                               Place place) {
  std::unique_ptr<CardLeg> made(new CardLeg(card, owners, leg, kernels, shift, place));
  made->place_slabs(memory, owners, leg);
  TERRACE_ASSIGN_OR_RETURN(made->executor_, card.make_executor());
  return made;
}

CardLeg::CardLeg(kernels::ExpertCard& card, const OwnerTable& owners, std::size_t leg,
                 const std::vector<kernels::ExpertKernels>& kernels, int shift, Place place)
    : card_(card),
      name_(owners.leg_name(leg)),
      n_experts_(owners.n_experts()),
      experts_(owners.n_slabs(leg)),
      shift_(shift),
      place_(place) {
  for (const kernels::ExpertKernels& layer : kernels) {
    shapes_.push_back(layer.shape);
    classes_.push_back({layer.gate_class(), layer.up_class()});
  }
}

// What begins at `at` of memory_ is a part.
std::byte* CardLeg::place(std::uint64_t at, std::uint64_t bytes, std::uint32_t layer, std::uint16_t expert,
                          SlabPart part) {
  parts_.push_back({at, bytes, layer, expert, part});
  return memory_.data() + at;
}

void CardLeg::place_slabs(std::span<std::byte> memory, const OwnerTable& owners, std::size_t leg) {
  memory_ = memory;
  std::uint64_t used = 0;
  slabs_.resize(std::size_t{owners.n_layers()} * n_experts_);
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer) {
    const kernels::ExpertShape& shape = shapes_[layer];
    for (const std::uint16_t expert : owners.experts(leg, layer)) {
      TERRACE_CHECK(used + card_slab_bytes(shape) <= memory.size(), "a card was given more slabs than it has memory");
      const std::uint64_t up = used + round_to_parts(shape.gate_bytes()), down = up + round_to_parts(shape.up_bytes());
      slabs_[std::size_t{layer} * n_experts_ + expert] = {
          place(used, shape.gate_bytes(), layer, expert, SlabPart::kGate),
          place(up, shape.up_bytes(), layer, expert, SlabPart::kUp),
          place(down, shape.down_bytes(), layer, expert, SlabPart::kDown)};
      used += card_slab_bytes(shape);
      weight_bytes_ += shape.slab_bytes();
    }
  }
  memory_ = memory.first(used);
}

// What belongs at `at` of memory_: parts, and zeroes between them.
Status CardLeg::fill(std::uint64_t at, std::span<std::byte> piece, const SlabPartReader& read) const {
  const std::uint64_t end = at + piece.size();
  std::uint64_t filled = at;
  const auto clear_until = [&](std::uint64_t until) { std::memset(piece.data() + (filled - at), 0, until - filled); };
  auto part = std::ranges::partition_point(parts_, [&](const PlacedPart& p) { return p.at + p.bytes <= at; });
  for (; part != parts_.end() && part->at < end; ++part) {
    const std::uint64_t begin = std::max(at, part->at), stop = std::min(end, part->at + part->bytes);
    clear_until(begin);
    TERRACE_RETURN_IF_ERROR(
        read(part->layer, part->expert, part->part, begin - part->at, piece.subspan(begin - at, stop - begin)));
    filled = stop;
  }
  clear_until(end);
  return {};
}

Result<std::vector<std::unique_ptr<kernels::CardWriter>>> CardLeg::make_writers(const Parallel& parallel) {
  const std::size_t n_pieces = (memory_.size() + kPiece - 1) / kPiece;
  std::vector<std::unique_ptr<kernels::CardWriter>> writers;
  for (std::size_t i = 0; i < std::min({parallel.n_workers(), n_pieces, kMostCardWriters}); ++i) {
    TERRACE_ASSIGN_OR_RETURN(std::unique_ptr<kernels::CardWriter> writer, card_.make_writer());
    writers.push_back(std::move(writer));
  }
  return writers;
}

// By pieces of one size, whatever that of slabs is: a copy costs some microseconds beside its bytes. Each writer takes
// the next one that nobody has.
Status CardLeg::load(const SlabPartReader& read, Parallel& parallel,
                     FunctionRef<void(std::uint64_t, std::uint64_t)> on_progress) {
  TERRACE_ASSIGN_OR_RETURN(const auto writers, make_writers(parallel));
  std::atomic<std::uint64_t> next = 0;  // place of a piece
  std::mutex mutex;                     // guards the two below, and on_progress
  std::uint64_t done = 0;
  std::optional<Error> failed;
  const auto note = [&](const Status& status, std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    if (!status.ok() && !failed) failed = status.error();
    if (bytes > 0 && !failed) on_progress(done += bytes, memory_.size());
    return !failed;
  };
  parallel.run(writers.size(), [&](std::size_t writer, std::size_t) {
    while (note({}, 0)) {  // nobody reads gigabytes for a load that has failed
      const std::uint64_t begin = next.fetch_add(kPiece);
      if (begin >= memory_.size()) return;
      const std::uint64_t bytes = std::min(kPiece, memory_.size() - begin);
      note(writers[writer]->queue(
               memory_.data() + begin, bytes,
               [&](std::uint64_t at, std::span<std::byte> piece) { return fill(begin + at, piece, read); }),
           bytes);
    }
  });
  for (const auto& writer : writers) note(writer->finish(), 0);
  if (failed) return lost(failed->in(fmt::format("loading experts to {}", name_)));
  counters_.weight_bytes_sent += weight_bytes_;
  if (place_ == Place::kWithTrunk) return {};
  const Status computed = compute_each_shape();
  if (!computed.ok()) return lost(computed.error().in(name_));
  return {};
}

// A shape's first pairs make the driver load kernels, for which it may wait for what its cards are at. Later the
// trunk's card may be in a step that waits for this leg.
Status CardLeg::compute_each_shape() {
  std::vector<kernels::ExpertShape> computed;
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    const auto layer = static_cast<std::uint32_t>(i / n_experts_);
    if (slabs_[i].gate == nullptr || std::ranges::count(computed, shapes_[layer]) > 0) continue;
    for (const std::uint16_t n_rows : kTrialRows) TERRACE_RETURN_IF_ERROR(compute_zeros(layer, slabs_[i], n_rows));
    computed.push_back(shapes_[layer]);
  }
  return {};
}

// Rows of zeros, a pair each. Nobody asked for them, so nothing counts them.
Status CardLeg::compute_zeros(std::uint32_t layer, const kernels::SlabView& slab, std::uint16_t n_rows) {
  const kernels::ExpertShape& shape = shapes_[layer];
  const RowClasses& classes = classes_[layer];
  const std::size_t gate_bytes = row_bytes(classes.gate, shape.d_model),
                    up_bytes = row_bytes(classes.up, shape.d_model);
  const std::vector<std::byte> zeros(n_rows * std::max(gate_bytes, up_bytes));
  std::vector<kernels::Pair> pairs;
  for (std::uint16_t row = 0; row < n_rows; ++row) pairs.push_back({.row = row, .expert = 0, .weight = 1.0f});
  TERRACE_RETURN_IF_ERROR(executor_->submit(
      shape, [&](std::uint16_t) { return slab; },
      {{classes.gate, zeros.data(), gate_bytes}, {classes.up, zeros.data(), up_bytes}, n_rows, pairs}, shift_));
  std::vector<std::int64_t> sums(std::size_t{n_rows} * shape.d_model);
  std::vector<std::uint8_t> failed(n_rows);
  const auto stats = executor_->collect({sums.data(), shape.d_model, shift_}, failed, [] { return true; });
  return stats.ok() ? Status() : stats.error();
}

Error CardLeg::lost(const Error& why) {
  lost_ = true;
  return why;
}

Result<Ticket> CardLeg::submit(const LegBatch& batch) {
  if (open_ != 0)
    return Error(ErrorCode::kBusy, fmt::format("{}: one batch is open; collect it before the next", name_));
  const std::size_t first_slab = std::size_t{batch.layer} * n_experts_;
  const Status submitted = executor_->submit(
      shapes_[batch.layer], [&](std::uint16_t expert) { return slabs_[first_slab + expert]; },
      {batch.gate_rows, batch.up_rows, batch.n_rows, batch.pairs}, shift_);
  if (!submitted.ok()) return lost(submitted.error().in(name_));
  row_seen_.assign(batch.n_rows, 0);
  for (const kernels::Pair& pair : batch.pairs) row_seen_[pair.row] = 1;
  counters_.batches += 1;
  counters_.rows += static_cast<std::uint64_t>(std::count(row_seen_.begin(), row_seen_.end(), 1));
  counters_.pairs += batch.pairs.size();
  return open_ = next_ticket_++;
}

Status CardLeg::collect(Ticket ticket, kernels::SumsView sums, std::span<std::uint8_t> failed) {
  TERRACE_CHECK(ticket != 0 && ticket == open_, "collect() of a ticket that is not open");
  open_ = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto stats = executor_->collect(sums, failed, [] { return true; });
  counters_.wait_us += us_of(std::chrono::steady_clock::now() - start);
  if (!stats.ok()) return lost(stats.error().in(name_));
  counters_.compute_us += stats->compute_ns / 1000;
  return {};
}

}  // namespace terrace::legs
