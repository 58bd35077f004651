#include "coordinator/app/overlap_note.h"

#include <fmt/core.h>

namespace terrace::app {
namespace {

// What docs/adr/0026 makes of the options, where legs compute beside the card that has the trunk.
std::string card_overlap_note(const arch::TrunkOptions& trunk, const manifest::ModelExperts& experts, bool nodes) {
  if (trunk.overlap == arch::Overlap::kOff) return "every step runs whole (--overlap off)";
  const std::size_t most = arch::most_parts_on_card(trunk, nodes);
  if (trunk.overlap == arch::Overlap::kOn)
    return fmt::format("every step that is more than a few rows runs in {} parts (--overlap on)", most);
  const arch::CardStep step{.n_experts = experts.n_experts, .top_k = experts.top_k};
  return fmt::format(
      "prompts of {} rows and more run in up to {} parts: the card is at one while {} at others; other steps run whole",
      2 * step.least_part(), most, nodes ? "host and nodes are" : "the host is");
}

// What docs/adr/0025 makes of the options.
std::string cpu_overlap_note(const arch::TrunkOptions& trunk) {
  switch (trunk.overlap) {
    case arch::Overlap::kOn:
      return fmt::format("every step runs in parts of its rows, a prompt's in up to {} (--overlap on)",
                         trunk.prompt_parts);
    case arch::Overlap::kOff:
      return "every step runs whole (--overlap off)";
    case arch::Overlap::kAuto:
      break;
  }
  return fmt::format("prompts of {} rows and more run in parts, up to {}, steps of several streams {}",
                     2 * arch::kLeastPromptPart, trunk.prompt_parts,
                     trunk.decode_in_halves ? "in two, for the plan says that it pays" : "whole");
}

// What kernels that wait for legs are to the card's driver.
std::string long_kernels_note(const arch::TrunkOptions& trunk) {
  if (trunk.card == nullptr || !trunk.card->facts().ends_long_kernels) return "";
  return fmt::format(
      "; no step runs on card {} by itself: its driver ends kernels that run for seconds, as where a display is "
      "connected, so each layer comes back, which is slower",
      trunk.card->facts().index);
}

}  // namespace

std::string overlap_note(const arch::TrunkOptions& trunk, const manifest::ModelExperts& experts,
                         const ExpertOwners& owners) {
  if (trunk.on_card && !owners.all_card)
    return card_overlap_note(trunk, experts, owners.nodes) + long_kernels_note(trunk);
  return owners.nodes ? cpu_overlap_note(trunk) : "";
}

}  // namespace terrace::app
