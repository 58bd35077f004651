#include "kernels/selftest/card.h"

#include <fmt/core.h>

#include <cstring>

#include "kernels/registry/registry.h"
#include "kernels/selftest/sample.h"

namespace terrace::kernels {
namespace {

using selftest::Sample;

// Copies a part behind the others; where it lies.
Result<std::byte*> upload(CardWriter& writer, std::span<std::byte>& free, std::span<const std::byte> part) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t bytes = (part.size() + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > free.size())
    return Error(ErrorCode::kOutOfMemory, fmt::format("{} bytes of slab memory do not hold the self check's expert; "
                                                      "give the card more --vram",
                                                      free.size()));
  std::byte* const at = free.data();
  free = free.subspan(bytes);
  TERRACE_RETURN_IF_ERROR(writer.write(at, part));
  return at;
}

Result<std::vector<float>> compute_on_card(const Sample& sample, ExpertCard& card, CardExecutor& executor,
                                           CardWriter& writer, const WeightKernels& kernels) {
  std::span<std::byte> free = card.slab_memory();
  SlabView slab;
  TERRACE_ASSIGN_OR_RETURN(slab.gate, upload(writer, free, sample.gate));
  TERRACE_ASSIGN_OR_RETURN(slab.up, upload(writer, free, sample.up));
  TERRACE_ASSIGN_OR_RETURN(slab.down, upload(writer, free, sample.down));
  const std::vector<std::byte> rows = quantised_rows(sample, kernels.activation, all_ops().front());
  const RowsView view{kernels.activation, rows.data(), rows.size() / Sample::kRows};
  std::vector<float> out(Sample::kRows * Sample::kModelWidth);
  std::uint8_t failed[Sample::kRows] = {};
  TERRACE_RETURN_IF_ERROR(executor.run_slots(
      sample.shape, [&](std::uint16_t) { return slab; }, {view, view, Sample::kRows, selftest::kPairs}, out, failed,
      [] { return true; }));
  return out;
}

Status check_type(ExpertCard& card, CardExecutor& executor, CardWriter& writer, const WeightKernels& reference) {
  const Sample sample = selftest::make_sample(reference);
  if (!card.check(sample.shape).ok()) return {};
  TERRACE_ASSIGN_OR_RETURN(const std::vector<float> expected, selftest::compute(sample, {}, Isa::kScalar));
  TERRACE_ASSIGN_OR_RETURN(const std::vector<float> found, compute_on_card(sample, card, executor, writer, reference));
  if (std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) == 0) return {};
  return Error(ErrorCode::kInternal,
               fmt::format("self check: {} gives other bits than the contract; this card, its driver or this build "
                           "computes wrongly",
                           info(reference.type).name));
}

}  // namespace

Status check_card(ExpertCard& card) {
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<CardExecutor> executor, card.make_executor());
  TERRACE_ASSIGN_OR_RETURN(const std::unique_ptr<CardWriter> writer, card.make_writer());
  for (const WeightKernels& kernels : all_weight_kernels()) {
    if (kernels.isa != Isa::kScalar) continue;
    const Status checked = check_type(card, *executor, *writer, kernels);
    if (!checked.ok()) return checked.error().in(fmt::format("card {} ({})", card.facts().index, card.facts().name));
  }
  return {};
}

}  // namespace terrace::kernels
