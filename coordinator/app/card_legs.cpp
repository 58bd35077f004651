#include "coordinator/app/card_legs.h"

#include <chrono>
#include <string>
#include <utility>

#include "common/base/units.h"
#include "kernels/selftest/card.h"

namespace terrace::app {
namespace {

using Place = legs::CardLeg::Place;

void tell_trunk(const Placement& placement, const std::string& name, terminal::Notes& notes) {
  const std::string size = format_size(placement.card_dense_bytes);
  if (placement.trunk.on_card)
    return notes.print("{}: the trunk too, {}, with a cache of {} positions", name, size,
                       placement.trunk.on_card->max_kv_blocks * kernels::kKvBlockPositions);
  notes.print("{}: the trunk stays on the CPU: {}", name, placement.off_card->text());
  if (placement.card_dense_bytes > 0)
    notes.print("{}: the trunk's dense matrices too, {}", name, size);
  else
    notes.print("{}: the trunk's dense matrices stay on the CPU, they do not fit beside", name);
}

Status load(legs::CardLeg& leg, const kernels::ExpertCard& card, const CardLegsInput& input, terminal::Notes& notes) {
  const auto begin = std::chrono::steady_clock::now();
  auto task = notes.begin(leg.name());
  TERRACE_RETURN_IF_ERROR(leg.load(input.read, input.parallel,
                                   [&](std::uint64_t done, std::uint64_t total) { task->update(done, total); }));
  task.reset();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const std::uint64_t bytes = leg.counters().weight_bytes_sent;
  notes.print("{}: {}, {} slabs, {} loaded at {}/s", leg.name(), card.facts().name, leg.experts(), format_size(bytes),
              format_size(static_cast<std::uint64_t>(static_cast<double>(bytes) / elapsed.count())));
  return {};
}

// place: in `input.cards`. The first card is the trunk's.
Result<std::shared_ptr<legs::Leg>> open_leg(const CardLegsInput& input, std::size_t place, terminal::Notes& notes) {
  const Placement& placement = input.placement;
  const bool is_trunks = place == 0;
  kernels::ExpertCard& card = *input.cards.cards[place];
  TERRACE_RETURN_IF_ERROR(kernels::check_card(card));
  const std::size_t leg = placement.owners.n_legs() - input.cards.cards.size() + place;
  const auto memory = card.slab_memory().subspan(is_trunks ? placement.card_dense_bytes : 0);
  TERRACE_ASSIGN_OR_RETURN(std::shared_ptr<legs::CardLeg> made,
                           legs::CardLeg::make(card, memory, placement.owners, leg, input.kernels, input.shift,
                                               is_trunks ? Place::kWithTrunk : Place::kApart));
  TERRACE_RETURN_IF_ERROR(load(*made, card, input, notes));
  if (is_trunks)
    tell_trunk(placement, made->name(), notes);
  else if (made->experts() == 0)
    notes.print("{}: the cards before it hold all experts of this machine; leave it out of --gpu", made->name());
  return std::shared_ptr<legs::Leg>(std::move(made));
}

}  // namespace

Result<std::vector<std::shared_ptr<legs::Leg>>> open_card_legs(const CardLegsInput& input, terminal::Notes& notes) {
  for (const std::string& line : input.cards.missing) notes.print("{}", line);
  std::vector<std::shared_ptr<legs::Leg>> all;
  for (std::size_t place = 0; place < input.cards.cards.size(); ++place) {
    TERRACE_ASSIGN_OR_RETURN(std::shared_ptr<legs::Leg> leg, open_leg(input, place, notes));
    all.push_back(std::move(leg));
  }
  return all;
}

}  // namespace terrace::app
