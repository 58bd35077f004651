#include "coordinator/arch/parts/steps_on_card.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/check.h"

namespace terrace::arch {
namespace {

using kernels::CardFailure;

const char* text(CardFailure what) {
  switch (what) {
    case CardFailure::kNormedBeforeAttention:
      return "normed values before attention";
    case CardFailure::kQueries:
      return "queries";
    case CardFailure::kKeys:
      return "keys";
    case CardFailure::kValues:
      return "values";
    case CardFailure::kAttention:
      return "attention values";
    case CardFailure::kResidualAfterAttention:
      return "residual values after attention";
    case CardFailure::kNormedBeforeExperts:
      return "normed values before the experts";
    case CardFailure::kRouter:
      return "router logits";
    case CardFailure::kExperts:
      return "expert outputs";
    case CardFailure::kResidualAfterExperts:
      return "residual values after the experts";
    case CardFailure::kNormedBeforeHead:
      return "normed values before the output head";
    case CardFailure::kLogits:
      return "logits";
  }
  return "values";
}

void give_way() { std::this_thread::yield(); }

std::uint64_t us_since(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return static_cast<std::uint64_t>(std::chrono::round<std::chrono::microseconds>(passed).count());
}

}  // namespace

CardBlocks::CardBlocks(kernels::CardTrunk& card, std::uint64_t n_blocks) : card_(card) {
  free_.reserve(n_blocks);
  for (auto block = static_cast<std::uint32_t>(n_blocks); block > 0; --block) free_.push_back(block - 1);
}

std::optional<std::uint32_t> CardBlocks::take() {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t block = free_.back();
  free_.pop_back();
  return block;
}

StepsOnCard::StepsOnCard(StepsOnCardParts parts, legs::RoutedExperts& experts, Parallel& parallel)
    : parts_(std::move(parts)),
      experts_(experts),
      parallel_(parallel),
      blocks_(*parts_.card, parts_.options.on_card->max_kv_blocks),
      cache_(parts_.cache, parts_.options.on_card->context, parts_.options.max_streams,
             parts_.options.on_card->max_kv_blocks, &blocks_),
      streams_(cache_, parts_.info.vocabulary, parts_.options.on_card->max_rows),
      failed_(parts_.options.on_card->max_rows),
      table_of_(parts_.options.max_streams) {}

Result<StepResult> StepsOnCard::step(std::span<const StepRow> rows) {
  TERRACE_RETURN_IF_ERROR(streams_.begin(rows));
  failures_.reset(rows.size());
  if (rows.empty()) return StepResult{};
  const Result<Heads> heads = compute(rows);
  if (!heads.ok()) {
    streams_.roll_back(rows);
    return heads.error();
  }
  const auto wanted = static_cast<std::size_t>(std::ranges::count(rows, true, &StepRow::want_logits));
  StepResult result;
  result.logits = {heads->logits, wanted * parts_.info.vocabulary};
  result.largest = heads->largest;
  streams_.commit(rows, failures_, result.failed);
  return result;
}

Result<StepsOnCard::Heads> StepsOnCard::compute(std::span<const StepRow> rows) {
  experts_.begin_step();
  cache_.set_step(experts_.step());
  failed_sums_.clear();
  const kernels::CardStepSize size = size_of(rows);
  const bool all_here = !trace_ && !experts_.slabs_on_card().empty();
  const bool started = !trace_ && !all_here && parts_.card->starts(size) && !experts_.launches_on_card();
  const CardStep step{size.n_rows, parts_.info.n_experts, parts_.info.top_k, experts_.computes_elsewhere()};
  cut_parts(size.n_rows, all_here || started || trace_ ? 1 : parts_on_card(parts_.options, step));
  TERRACE_CHECK(n_parts_ <= parts_.options.on_card->max_parts, "the card has no room for so many parts");
  for (const Part& part : std::span(step_parts_).first(n_parts_)) {
    const auto own = rows.subspan(part.first, part.n);
    fill(own, part.first, parts_.card->begin_part(size_of(own), part.number));
  }
  if (all_here) return whole();
  return started ? beside_legs() : by_layers(trace_ ? std::span<const kernels::SlabView>() : experts_.part_on_card());
}

// The first ones have a row more where they are not equal.
void StepsOnCard::cut_parts(std::uint32_t n_rows, std::size_t n_parts) {
  n_parts_ = n_parts;
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < n_parts_; ++i) {
    const auto left = static_cast<std::uint32_t>(n_parts_ - i);
    step_parts_[i] = {.number = i, .first = first, .n = (n_rows - first + left - 1) / left};
    first += step_parts_[i].n;
  }
}

Result<StepsOnCard::Heads> StepsOnCard::whole() {
  TERRACE_ASSIGN_OR_RETURN(const kernels::CardStepResult result, parts_.card->run(experts_.slabs_on_card()));
  experts_.count_on_card(result.experts, step_parts_[0].n, result.compute_ns);
  note_failures(result, step_parts_[0]);
  return Heads{result.logits, result.largest};
}

// Gives each stream of the rows a block table.
kernels::CardStepSize StepsOnCard::size_of(std::span<const StepRow> rows) {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  kernels::CardStepSize size;
  size.n_rows = static_cast<std::uint32_t>(rows.size());
  for (const StepRow& row : rows) table_of_[row.stream] = kNone;
  tables_.clear();
  positions_.clear();
  for (const StepRow& row : rows) {
    std::uint32_t& table = table_of_[row.stream];
    if (table == kNone) {
      table = static_cast<std::uint32_t>(tables_.size());
      tables_.push_back(row.stream);
      positions_.push_back(0);
    }
    positions_[table] = row.position + 1;  // rows of a stream come with rising positions
    size.most_keys = std::max(size.most_keys, row.position + 1);
    if (row.want_logits) ++size.n_wanted;
  }
  size.n_tables = static_cast<std::uint32_t>(tables_.size());
  return size;
}

// first: row of the step.
void StepsOnCard::fill(std::span<const StepRow> rows, std::uint32_t first, const kernels::CardStepInput& input) {
  const std::size_t d_model = parts_.info.d_model, n_pairs = parts_.attention.n_rot / 2;
  for_each_row(parallel_, rows.size(), [&](std::size_t i, std::size_t) {
    float* const x = input.x + i * d_model;
    parts_.embedding.kernels.dequantize_row(parts_.embedding.row(static_cast<std::size_t>(rows[i].token)), d_model, x);
    if (!parts_.ops.all_finite(x, d_model))
      failures_.fail(first + i, RowFailures::kNoLayer, "embedding's values", x, d_model);
    kernels::rope_table(rows[i].position, parts_.attention.n_rot, parts_.attention.rope_base,
                        parts_.attention.rope_scaling, input.cosines + i * n_pairs, input.sines + i * n_pairs);
  });
  fill_tables(rows, input);
}

void StepsOnCard::fill_tables(std::span<const StepRow> rows, const kernels::CardStepInput& input) {
  std::size_t n_wanted = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    input.positions[i] = rows[i].position;
    input.n_keys[i] = rows[i].position + 1;
    input.tables[i] = table_of_[rows[i].stream];
    if (rows[i].want_logits) input.wanted[n_wanted++] = static_cast<std::uint32_t>(i);
  }
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    std::uint32_t* const blocks = input.blocks + table * input.blocks_stride;
    for (std::size_t i = 0; i < kv::Cache::blocks_for(positions_[table]); ++i)
      blocks[i] = cache_.block_number(tables_[table], i);
  }
}

// ---- beside other legs ----------------------------------------------------------------------------------------------

// The card goes through the whole step by itself; each layer of it waits for the sums of the other legs.
Result<StepsOnCard::Heads> StepsOnCard::beside_legs() {
  const std::span<const kernels::SlabView> slabs = experts_.part_on_card();
  TERRACE_RETURN_IF_ERROR(parts_.card->start(slabs));
  for (std::uint32_t layer = 0; layer < parts_.info.n_layers; ++layer) {
    const Status computed = layer_of_legs(layer, !slabs.empty());
    if (!computed.ok()) {
      parts_.card->give_up();
      return computed.error();
    }
  }
  TERRACE_ASSIGN_OR_RETURN(const kernels::CardStepResult result, parts_.card->finish());
  note_failures(result, step_parts_[0]);
  return Heads{result.logits, result.largest};
}

Status StepsOnCard::layer_of_legs(std::uint32_t layer, bool own_on_card) {
  Part& part = step_parts_[0];
  const auto begin = std::chrono::steady_clock::now();
  const bool blocks = parts_.options.waiting == Waiting::kBlock;
  TERRACE_ASSIGN_OR_RETURN(part.routed, parts_.card->routed(layer, blocks ? give_way : nullptr));
  part.wait_us = us_since(begin);
  TERRACE_RETURN_IF_ERROR(submit(part, layer, own_on_card));
  TERRACE_RETURN_IF_ERROR(collect(part, layer));
  parts_.card->give_sums(layer);
  return {};
}

// ---- layer by layer -------------------------------------------------------------------------------------------------

Result<StepsOnCard::Heads> StepsOnCard::by_layers(std::span<const kernels::SlabView> slabs) {
  n_open_ = 0;
  const Status computed = take_turns(slabs);
  if (computed.ok()) return end_parts();
  parts_.card->give_up();
  const Status abandoned = experts_.abandon();
  return abandoned.ok() ? computed.error() : abandoned.error();
}

// A turn is a layer of a part, part by part, then the next layer. While the legs' sums of one turn are collected, which
// is when the host computes its own experts, the card is at the next turn of the part before, and every other part lies
// with the legs: so rows are taken from the card one turn later than they were queued, when they have long been there.
Status StepsOnCard::take_turns(std::span<const kernels::SlabView> slabs) {
  const std::size_t n_turns = n_parts_ * parts_.info.n_layers, ahead = std::max<std::size_t>(n_parts_ - 1, 1);
  const auto queue = [&](std::size_t turn) -> Status {
    return turn < n_turns ? parts_.card->queue_layer(part_of(turn).number, layer_of(turn), slabs) : Status();
  };
  const auto hand_out = [&](std::size_t turn) -> Status {
    if (turn >= n_turns) return {};
    TERRACE_RETURN_IF_ERROR(wait_for_rows(part_of(turn)));
    return submit(part_of(turn), layer_of(turn), !slabs.empty());
  };
  for (std::size_t turn = 0; turn < n_parts_; ++turn) TERRACE_RETURN_IF_ERROR(queue(turn));
  for (std::size_t turn = 0; turn < ahead; ++turn) TERRACE_RETURN_IF_ERROR(hand_out(turn));
  for (std::size_t turn = 0; turn < n_turns; ++turn) {
    TERRACE_RETURN_IF_ERROR(collect(part_of(turn), layer_of(turn)));
    if (trace_) TERRACE_RETURN_IF_ERROR(trace(part_of(turn), layer_of(turn)));
    TERRACE_RETURN_IF_ERROR(queue(turn + n_parts_));
    TERRACE_RETURN_IF_ERROR(hand_out(turn + ahead));
  }
  return {};
}

Status StepsOnCard::wait_for_rows(Part& part) {
  const auto begin = std::chrono::steady_clock::now();
  TERRACE_ASSIGN_OR_RETURN(part.routed, rows_of(part.number));
  part.wait_us = us_since(begin);
  return {};
}

// Bytes of other parts' batches move meanwhile; where none are under way, nothing is to be done but to wait as the
// policy says.
Result<kernels::CardRoutedRows> StepsOnCard::rows_of(std::uint32_t part) {
  const auto until = std::chrono::steady_clock::now() + kSpinTime;
  const bool looks = parts_.options.waiting == Waiting::kSpinThenPark;
  while (n_open_ > 0 || (looks && std::chrono::steady_clock::now() < until)) {
    TERRACE_ASSIGN_OR_RETURN(const std::optional<kernels::CardRoutedRows> routed, parts_.card->poll_routed(part));
    if (routed) return *routed;
    if (n_open_ > 0) experts_.progress();
  }
  return parts_.card->wait_routed(part);
}

Result<StepsOnCard::Heads> StepsOnCard::end_parts() {
  logits_.clear();
  largest_.clear();
  for (const Part& part : std::span(step_parts_).first(n_parts_)) {
    TERRACE_ASSIGN_OR_RETURN(const kernels::CardStepResult result, parts_.card->head(part.number));
    note_failures(result, part);
    if (n_parts_ == 1) return Heads{result.logits, result.largest};
    logits_.insert(logits_.end(), result.logits, result.logits + result.n_logits * parts_.info.vocabulary);
    largest_.insert(largest_.end(), result.largest.begin(), result.largest.end());
  }
  return Heads{logits_.data(), largest_};
}

// ---- a layer's experts ----------------------------------------------------------------------------------------------

Status StepsOnCard::submit(const Part& part, std::uint32_t layer, bool own_on_card) {
  legs::RoutedRows rows;
  rows.layer = layer;
  rows.rows = part.routed.rows;
  rows.n_rows = part.n;
  rows.experts = part.routed.experts;
  rows.weights = part.routed.weights;
  rows.priority = streams_.one_row_each() ? legs::Priority::kDecode : legs::Priority::kPrompt;
  rows.without_card = own_on_card;
  rows.card_wait_us = part.wait_us;
  TERRACE_RETURN_IF_ERROR(experts_.submit(rows));
  ++n_open_;
  return {};
}

Status StepsOnCard::collect(const Part& part, std::uint32_t layer) {
  const std::size_t d_model = parts_.info.d_model, top_k = parts_.info.top_k;
  --n_open_;
  std::fill_n(failed_.begin(), part.n, std::uint8_t{0});
  std::int64_t* const sums = parts_.card->sums_of(part.number).data();
  TERRACE_RETURN_IF_ERROR(experts_.collect({sums, d_model, parts_.options.shift}, std::span(failed_).first(part.n)));
  for (std::uint32_t row = 0; row < part.n; ++row) {
    if (failed_[row] == 0) continue;
    std::fill_n(sums + row * d_model, d_model, std::int64_t{0});
    const std::uint16_t* const chosen = part.routed.experts + row * top_k;
    if (failed_sum(part.first + row) == nullptr)
      failed_sums_.push_back({part.first + row, layer, {chosen, chosen + top_k}});
  }
  return {};
}

Status StepsOnCard::trace(const Part& part, std::uint32_t layer) {
  const std::size_t d_model = parts_.info.d_model, top_k = parts_.info.top_k;
  const std::vector<std::uint16_t> experts(part.routed.experts, part.routed.experts + part.n * top_k);
  const std::vector<float> weights(part.routed.weights, part.routed.weights + part.n * top_k);
  TERRACE_ASSIGN_OR_RETURN(const float* const x, parts_.card->add_and_read(layer));
  const std::span<const std::int64_t> sums = parts_.card->sums_of(part.number);
  for (std::uint32_t row = 0; row < part.n; ++row) {
    if (failed_sum(part.first + row) != nullptr) continue;
    trace_({layer,
            part.first + row,
            std::span(experts).subspan(row * top_k, top_k),
            std::span(weights).subspan(row * top_k, top_k),
            sums.subspan(row * d_model, d_model),
            {x + row * d_model, d_model}});
  }
  return {};
}

// ---- rows that failed -----------------------------------------------------------------------------------------------

const StepsOnCard::FailedSum* StepsOnCard::failed_sum(std::uint32_t row) const {
  const auto found = std::ranges::find(failed_sums_, row, &FailedSum::row);
  return found == failed_sums_.end() ? nullptr : &*found;
}

// The first failure of a row is told, the card's or a leg's.
void StepsOnCard::note_failures(const kernels::CardStepResult& result, const Part& part) {
  const std::size_t top_k = parts_.info.top_k;
  for (const kernels::CardRowFailure& failure : result.failures) {
    const std::uint32_t row = part.first + failure.row;
    const FailedSum* sum = failed_sum(row);
    if (sum != nullptr && std::pair(sum->layer, CardFailure::kExperts) < std::pair(failure.layer, failure.what))
      continue;
    if (failure.what == CardFailure::kExperts) {
      const std::uint16_t* const chosen = result.experts + (std::size_t{failure.layer} * part.n + failure.row) * top_k;
      failures_.fail_experts(row, failure.layer, {chosen, top_k}, nullptr, 0);
    } else {
      const bool behind = failure.layer == parts_.info.n_layers;
      failures_.fail(row, behind ? RowFailures::kNoLayer : failure.layer, text(failure.what), nullptr, 0);
    }
  }
  for (const FailedSum& sum : failed_sums_)
    if (sum.row >= part.first && sum.row < part.first + part.n)
      failures_.fail_experts(sum.row, sum.layer, sum.experts, nullptr, 0);
}

}  // namespace terrace::arch
