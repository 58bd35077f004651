#include "coordinator/arch/parts/steps_on_card.h"

#include <algorithm>
#include <chrono>
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
      blocks_(*parts_.card, parts_.limits.max_kv_blocks),
      cache_(parts_.cache, parts_.limits.context, parts_.max_streams, parts_.limits.max_kv_blocks, &blocks_),
      streams_(cache_, parts_.info.vocabulary, parts_.limits.max_rows),
      failed_(parts_.limits.max_rows),
      table_of_(parts_.max_streams) {}

Result<StepResult> StepsOnCard::step(std::span<const StepRow> rows) {
  TERRACE_RETURN_IF_ERROR(streams_.begin(rows));
  failures_.reset(rows.size());
  if (rows.empty()) return StepResult{};
  const Result<kernels::CardStepResult> computed = compute(rows);
  if (!computed.ok()) {
    streams_.roll_back(rows);
    return computed.error();
  }
  note_failures(*computed, static_cast<std::uint32_t>(rows.size()));
  const auto wanted = static_cast<std::size_t>(std::ranges::count(rows, true, &StepRow::want_logits));
  StepResult result;
  result.logits = {computed->logits, wanted * parts_.info.vocabulary};
  result.largest = computed->largest;
  streams_.commit(rows, failures_, result.failed);
  return result;
}

Result<kernels::CardStepResult> StepsOnCard::compute(std::span<const StepRow> rows) {
  experts_.begin_step();
  cache_.set_step(experts_.step());
  failed_sums_.clear();
  const kernels::CardStepSize size = begin(rows);
  fill(rows, parts_.card->begin(size));
  const std::span<const kernels::SlabView> slabs = experts_.slabs_on_card();
  if (!trace_ && slabs.empty() && parts_.card->starts(size) && !experts_.launches_on_card())
    return beside_legs(size.n_rows);
  if (slabs.empty() || trace_) return by_layers(size.n_rows);
  TERRACE_ASSIGN_OR_RETURN(const kernels::CardStepResult result, parts_.card->run(slabs));
  experts_.count_on_card(result.experts, size.n_rows, result.compute_ns);
  return result;
}

// Gives each stream of the step a block table.
kernels::CardStepSize StepsOnCard::begin(std::span<const StepRow> rows) {
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

void StepsOnCard::fill(std::span<const StepRow> rows, const kernels::CardStepInput& input) {
  const std::size_t d_model = parts_.info.d_model, n_pairs = parts_.attention.n_rot / 2;
  for_each_row(parallel_, rows.size(), [&](std::size_t i, std::size_t) {
    float* const x = input.x + i * d_model;
    parts_.embedding.kernels.dequantize_row(parts_.embedding.row(static_cast<std::size_t>(rows[i].token)), d_model, x);
    if (!parts_.ops.all_finite(x, d_model)) failures_.fail(i, RowFailures::kNoLayer, "embedding's values", x, d_model);
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
Result<kernels::CardStepResult> StepsOnCard::beside_legs(std::uint32_t n_rows) {
  const std::span<const kernels::SlabView> slabs = experts_.part_on_card();
  TERRACE_RETURN_IF_ERROR(parts_.card->start(slabs));
  for (std::uint32_t layer = 0; layer < parts_.info.n_layers; ++layer) {
    const Status computed = layer_of_legs(layer, n_rows, !slabs.empty());
    if (!computed.ok()) {
      parts_.card->give_up();
      return computed.error();
    }
  }
  return parts_.card->finish();
}

Status StepsOnCard::layer_of_legs(std::uint32_t layer, std::uint32_t n_rows, bool without_card) {
  const auto begin = std::chrono::steady_clock::now();
  TERRACE_ASSIGN_OR_RETURN(const kernels::CardRoutedRows routed, parts_.card->routed(layer));
  const auto waited = std::chrono::round<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  const Own own{without_card, static_cast<std::uint64_t>(waited.count())};
  TERRACE_RETURN_IF_ERROR(run_experts(layer, routed, n_rows, own));
  parts_.card->give_sums(layer);
  return {};
}

// ---- layer by layer -------------------------------------------------------------------------------------------------

Result<kernels::CardStepResult> StepsOnCard::by_layers(std::uint32_t n_rows) {
  bool sums_pending = false;
  for (std::uint32_t layer = 0; layer < parts_.info.n_layers; ++layer) {
    TERRACE_ASSIGN_OR_RETURN(const kernels::CardRoutedRows routed, parts_.card->attention(layer, sums_pending));
    TERRACE_RETURN_IF_ERROR(run_experts(layer, routed, n_rows, {}));
    if (trace_) TERRACE_RETURN_IF_ERROR(trace(layer, routed, n_rows));
    sums_pending = !trace_;
  }
  return parts_.card->head(sums_pending);
}

Status StepsOnCard::run_experts(std::uint32_t layer, const kernels::CardRoutedRows& routed, std::uint32_t n_rows,
                                const Own& own) {
  const std::size_t d_model = parts_.info.d_model, top_k = parts_.info.top_k;
  legs::RoutedRows rows;
  rows.layer = layer;
  rows.rows = routed.rows;
  rows.n_rows = n_rows;
  rows.experts = routed.experts;
  rows.weights = routed.weights;
  rows.priority = streams_.one_row_each() ? legs::Priority::kDecode : legs::Priority::kPrompt;
  rows.without_card = own.on_card;
  rows.card_wait_us = own.wait_us;
  TERRACE_RETURN_IF_ERROR(experts_.submit(rows));
  std::fill_n(failed_.begin(), n_rows, std::uint8_t{0});
  std::int64_t* const sums = parts_.card->sums().data();
  TERRACE_RETURN_IF_ERROR(experts_.collect({sums, d_model, parts_.shift}, std::span(failed_).first(n_rows)));
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    if (failed_[row] == 0) continue;
    std::fill_n(sums + row * d_model, d_model, std::int64_t{0});
    const std::uint16_t* const chosen = routed.experts + row * top_k;
    if (failed_sum(row) == nullptr) failed_sums_.push_back({row, layer, {chosen, chosen + top_k}});
  }
  return {};
}

Status StepsOnCard::trace(std::uint32_t layer, const kernels::CardRoutedRows& routed, std::uint32_t n_rows) {
  const std::size_t d_model = parts_.info.d_model, top_k = parts_.info.top_k;
  const std::vector<std::uint16_t> experts(routed.experts, routed.experts + n_rows * top_k);
  const std::vector<float> weights(routed.weights, routed.weights + n_rows * top_k);
  TERRACE_ASSIGN_OR_RETURN(const float* const x, parts_.card->add_and_read(layer));
  const std::span<const std::int64_t> sums = parts_.card->sums();
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    if (failed_sum(row) != nullptr) continue;
    trace_({layer,
            row,
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
void StepsOnCard::note_failures(const kernels::CardStepResult& result, std::uint32_t n_rows) {
  const std::size_t top_k = parts_.info.top_k;
  for (const kernels::CardRowFailure& failure : result.failures) {
    const FailedSum* sum = failed_sum(failure.row);
    if (sum != nullptr && std::pair(sum->layer, CardFailure::kExperts) < std::pair(failure.layer, failure.what))
      continue;
    if (failure.what == CardFailure::kExperts) {
      const std::uint16_t* const chosen = result.experts + (std::size_t{failure.layer} * n_rows + failure.row) * top_k;
      failures_.fail_experts(failure.row, failure.layer, {chosen, top_k}, nullptr, 0);
    } else {
      const bool behind = failure.layer == parts_.info.n_layers;
      failures_.fail(failure.row, behind ? RowFailures::kNoLayer : failure.layer, text(failure.what), nullptr, 0);
    }
  }
  for (const FailedSum& sum : failed_sums_) failures_.fail_experts(sum.row, sum.layer, sum.experts, nullptr, 0);
}

}  // namespace terrace::arch
