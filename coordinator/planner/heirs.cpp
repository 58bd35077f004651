#include "coordinator/planner/heirs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/arena/slab_store.h"
#include "common/base/check.h"

namespace terrace::planner {
namespace {

constexpr std::uint16_t kNoHeir = 0;  // the host has it, from its file

// All of the lost ones that may, or none.
std::vector<std::uint8_t> those_that_stay(const legs::OwnerTable& planned, std::span<const std::uint8_t> gone,
                                          const HeirTerms& terms) {
  std::vector<std::uint8_t> none(planned.n_legs(), 0);
  if (terms.stays.empty()) return none;
  std::uint64_t bytes = 0;
  for (std::uint32_t layer = 0; layer < planned.n_layers(); ++layer)
    for (const std::uint16_t owner : planned.owners(layer))
      if (gone[owner] != 0 && terms.stays[owner] != 0) bytes += terms.slab_bytes[layer];
  return bytes <= terms.host_room ? terms.stays : none;
}

// Deals a layer after the other.
class Dealer {
 public:
  Dealer(const legs::OwnerTable& planned, std::span<const std::uint8_t> gone, const HeirTerms& terms)
      : planned_(planned),
        gone_(gone),
        terms_(terms),
        stays_(those_that_stay(planned, gone, terms)),
        room_(terms.room) {}

  // What the leg has already of what others were planned to have.
  void count_held(std::uint32_t layer, std::uint32_t expert, std::uint16_t leg) {
    if (leg != kNoHeir && leg != planned_.owners(layer)[expert])
      room_[leg] -= std::min(room_[leg], terms_.kept_bytes[layer]);
  }

  // `owners` of a layer, whose lost experts the host has.
  void deal(std::uint32_t layer, std::span<std::uint16_t> owners) {
    owned_.assign(planned_.n_legs(), 0);
    for (const std::uint16_t owner : owners) ++owned_[owner];
    for (std::size_t expert = 0; expert < owners.size(); ++expert) {
      const std::uint16_t planned = planned_.owners(layer)[expert];
      if (owners[expert] != kNoHeir || gone_[planned] == 0 || stays_[planned] != 0) continue;
      owners[expert] = heir_in(layer);
      if (owners[expert] != kNoHeir) room_[owners[expert]] -= terms_.kept_bytes[layer];
      ++owned_[owners[expert]];
    }
  }

 private:
  std::uint16_t heir_in(std::uint32_t layer) const {
    std::uint16_t heir = kNoHeir;
    const auto done_after = [&](std::uint16_t leg) { return (owned_[leg] + 1) * terms_.expert_seconds[leg]; };
    for (std::uint16_t leg = 1; leg < planned_.n_legs(); ++leg)
      if (gone_[leg] == 0 && room_[leg] >= terms_.kept_bytes[layer] &&
          (heir == kNoHeir || done_after(leg) < done_after(heir)))
        heir = leg;
    return heir;
  }

  const legs::OwnerTable& planned_;
  const std::span<const std::uint8_t> gone_;
  const HeirTerms& terms_;
  const std::vector<std::uint8_t> stays_;  // [legs]
  std::vector<std::uint64_t> room_;        // [legs] what is left
  std::vector<std::uint32_t> owned_;       // [legs] of the layer
};

}  // namespace

// A node reserves for all slabs as if each were of the kind that loses most by its rounding.
HeirTerms heir_terms(const manifest::Manifest& model, std::size_t n_legs) {
  HeirTerms terms{std::vector<std::uint64_t>(n_legs, 0), std::vector<double>(n_legs, 1.0), {}, {}};
  double rounding = 1;
  for (std::uint32_t layer = 0; layer < model.n_layers(); ++layer) {
    const manifest::LayerShape& shape = model.layers[layer];
    terms.slab_bytes.push_back(model.slab_bytes(layer));
    if (shape.n_experts == 0) continue;
    const arena::SlabSizes sizes{shape.gate_bytes(), shape.up_bytes(), shape.down_bytes()};
    rounding = std::max(rounding, static_cast<double>(sizes.stored_bytes()) / static_cast<double>(sizes.file_bytes()));
  }
  for (const std::uint64_t bytes : terms.slab_bytes)
    terms.kept_bytes.push_back(static_cast<std::uint64_t>(std::ceil(static_cast<double>(bytes) * rounding)));
  return terms;
}

legs::OwnerTable owners_with_heirs(const legs::OwnerTable& planned, std::span<const std::uint8_t> gone,
                                   std::uint64_t epoch, const HeirTerms& terms, HoldsSlab holds) {
  TERRACE_CHECK(terms.room.size() == planned.n_legs() && terms.expert_seconds.size() == planned.n_legs() &&
                    terms.slab_bytes.size() == planned.n_layers() && terms.kept_bytes.size() == planned.n_layers() &&
                    (terms.stays.empty() || terms.stays.size() == planned.n_legs()),
                "terms of other legs or layers than the table's");
  const legs::OwnerTable now = owners_without(planned, gone, epoch, holds);
  Dealer dealer(planned, gone, terms);
  std::vector<std::uint16_t> owners;
  for (std::uint32_t layer = 0; layer < now.n_layers(); ++layer) {
    const auto row = now.owners(layer);
    owners.insert(owners.end(), row.begin(), row.end());
    for (std::uint32_t expert = 0; expert < now.n_experts(); ++expert) dealer.count_held(layer, expert, row[expert]);
  }
  for (std::uint32_t layer = 0; layer < now.n_layers(); ++layer)
    dealer.deal(layer, std::span(owners).subspan(std::size_t{layer} * now.n_experts(), now.n_experts()));
  return {epoch, now.leg_names(), now.n_layers(), now.n_experts(), std::move(owners)};
}

std::uint64_t bytes_to_move(std::span<const Heir> heirs) {
  std::uint64_t bytes = 0;
  for (const Heir& heir : heirs) bytes += heir.bytes;
  return bytes;
}

Inheritance inheritance_of(const legs::OwnerTable& planned, std::size_t lost, const HeirTerms& terms) {
  std::vector<std::uint8_t> gone(planned.n_legs(), 0);
  gone[lost] = 1;
  const auto nobody_holds = [](std::size_t, std::uint32_t, std::uint16_t) { return false; };
  Inheritance result{{}, 0, owners_with_heirs(planned, gone, planned.epoch() + 1, terms, nobody_holds)};
  std::vector<Heir> heirs(planned.n_legs());
  for (std::uint32_t layer = 0; layer < planned.n_layers(); ++layer)
    for (std::uint32_t expert = 0; expert < planned.n_experts(); ++expert) {
      if (planned.owners(layer)[expert] != lost) continue;
      Heir& heir = heirs[result.owners.owners(layer)[expert]];
      ++heir.experts;
      heir.bytes += terms.slab_bytes[layer];
    }
  result.host_experts = heirs[kNoHeir].experts;
  for (std::size_t leg = 1; leg < heirs.size(); ++leg) {
    heirs[leg].leg = leg;
    if (heirs[leg].experts > 0) result.heirs.push_back(heirs[leg]);
  }
  return result;
}

}  // namespace terrace::planner
