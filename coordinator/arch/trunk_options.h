// What a trunk is made with besides the file; the same for every architecture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/threads/waiting.h"
#include "kernels/card/expert_card.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"

namespace terrace::arch {

// Whether a step's rows go through the layers in parts, so that one's trunk is computed while the experts of others are
// (docs/adr/0025). The bits are the same.
enum class Overlap : std::uint8_t {
  kAuto,  // by the rule
  kOn,    // every step of two rows and more
  kOff,
};
inline constexpr const char* kOverlapNames[] = {"auto", "on", "off"};
inline const char* name(Overlap overlap) { return kOverlapNames[static_cast<std::size_t>(overlap)]; }

// Rows of half a prompt at the least, by the rule: so many share each reading of the trunk's weights and of a chosen
// expert's that a second one is paid by what it hides. Kernels take rows in tiles of at most 16.
inline constexpr std::size_t kLeastPromptPart = 32;
// The same where there are more than two parts: each reads them once more, and hides less than the second one did.
inline constexpr std::size_t kLeastFurtherPart = 64;
// Parts of a step that decodes several streams, where it has any: more read the trunk's weights again for little.
inline constexpr std::uint32_t kDecodeParts = 2;

struct TrunkOptions {
  std::uint32_t context = 0;  // positions a stream can hold; 0: the model's own, which is also the most
  kernels::KvType kv = kernels::KvType::kF16;
  std::uint32_t max_rows = 512;  // of one step, 1..65,536
  std::uint32_t max_streams = 1;
  Overlap overlap = Overlap::kAuto;
  bool decode_in_halves = false;    // what the rule says of steps that decode: a plan has found that it pays
  std::uint32_t prompt_parts = 2;   // of a prompt's step at the most, 2..legs::kMostLayersOpen: a plan may say more
  std::uint64_t cache_bytes = 0;    // keys and values of all streams, in whole blocks; 0: what the machine gives
  std::optional<kernels::Isa> isa;  // exactly this one (flag --isa), else the widest of each kernel
  kernels::Activations activations = kernels::Activations::kQuantised;
  int shift = 24;  // SHIFT of the model's manifest (docs/numerics.md 5)
  // Where the dense products of ModelInfo are computed, and the part of its slab memory for their weights, of
  // card_bytes() at least; null: here. Both are borrowed.
  kernels::ExpertCard* card = nullptr;
  std::span<std::byte> card_memory = {};
  // Set: the card computes the whole trunk, and its part of the memory is of trunk_bytes().
  std::optional<kernels::CardTrunkLimits> on_card = std::nullopt;
  kernels::LoadProgress on_card_progress = {};  // of its weights on their way there
  Waiting waiting = Waiting::kBlock;            // of the step's thread, for a card that computes the trunk by layers
};

// In how many parts a step of so many rows goes; 1: whole. elsewhere: nodes compute some of its experts. Of a trunk on
// a card: parts_on_card().
inline std::size_t step_parts(const TrunkOptions& options, bool decode, std::size_t n_rows, bool elsewhere) {
  const std::size_t most =
      std::min<std::size_t>(decode ? kDecodeParts : options.prompt_parts, std::max<std::size_t>(n_rows, 1));
  if (options.overlap == Overlap::kOff) return 1;
  if (options.overlap == Overlap::kOn) return most;
  if (!elsewhere || (decode && !options.decode_in_halves)) return 1;
  if (decode) return most;
  return n_rows < 2 * kLeastPromptPart ? 1 : std::clamp<std::size_t>(n_rows / kLeastFurtherPart, 2, most);
}

// Where a card computes the trunk (docs/adr/0026), parts are for its steps of many rows: while it is at one part's
// trunk and own experts, the others compute theirs of another. The host is kept busy by two parts; a node has its next
// batch before it answers the last one only where a third is under way.
inline constexpr std::uint32_t kCardParts = 2, kCardPartsBesideNodes = 3;
// Rows that an expert meets on average, at the least, in a part on whose behalf its weights are read once more: half a
// tile of the host's kernels.
inline constexpr std::size_t kLeastRowsOfExpert = 8;

// A step whose layers come back to the host.
struct CardStep {
  std::size_t n_rows = 0;
  std::size_t n_experts = 0, top_k = 0;  // of the model
  bool nodes = false;                    // some own experts

  std::size_t least_part() const { return (kLeastRowsOfExpert * n_experts + top_k - 1) / top_k; }
};
inline std::size_t most_parts_on_card(const TrunkOptions& options, bool nodes) {
  return nodes ? std::max(options.prompt_parts, kCardPartsBesideNodes) : kCardParts;
}
// In how many parts it goes; 1: whole.
inline std::size_t parts_on_card(const TrunkOptions& options, const CardStep& step) {
  const std::size_t most = most_parts_on_card(options, step.nodes);
  if (options.overlap == Overlap::kOff || step.n_rows < 2) return 1;
  if (options.overlap == Overlap::kOn) return std::min(most, step.n_rows);
  const std::size_t least = step.least_part();
  return step.n_rows < 2 * least ? 1 : std::clamp<std::size_t>(step.n_rows / least, 2, most);
}

}  // namespace terrace::arch
