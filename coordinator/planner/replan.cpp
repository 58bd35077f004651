#include "coordinator/planner/replan.h"

#include <utility>
#include <vector>

#include "common/base/check.h"

namespace terrace::planner {
namespace {

constexpr std::uint16_t kHost = 0;

}  // namespace

legs::OwnerTable owners_without(const legs::OwnerTable& planned, std::span<const std::uint8_t> gone,
                                std::uint64_t epoch, HoldsSlab holds) {
  TERRACE_CHECK(gone.size() == planned.n_legs(), "a list of other legs than the table's");
  TERRACE_CHECK(gone[kHost] == 0, "the host is never gone");
  std::vector<std::uint16_t> owners;
  owners.reserve(std::size_t{planned.n_layers()} * planned.n_experts());
  std::vector<std::uint32_t> owned(planned.n_legs());
  for (std::uint32_t layer = 0; layer < planned.n_layers(); ++layer) {
    owned.assign(planned.n_legs(), 0);
    for (const std::uint16_t owner : planned.owners(layer)) ++owned[owner];
    const auto heir_of = [&](std::uint16_t expert) {
      std::uint16_t heir = kHost;
      for (std::uint16_t leg = 1; leg < planned.n_legs(); ++leg)
        if (gone[leg] == 0 && (heir == kHost || owned[leg] < owned[heir]) && holds(leg, layer, expert)) heir = leg;
      ++owned[heir];
      return heir;
    };
    for (std::uint32_t expert = 0; expert < planned.n_experts(); ++expert) {
      const std::uint16_t owner = planned.owners(layer)[expert];
      owners.push_back(gone[owner] == 0 ? owner : heir_of(static_cast<std::uint16_t>(expert)));
    }
  }
  return {epoch, planned.leg_names(), planned.n_layers(), planned.n_experts(), std::move(owners)};
}

}  // namespace terrace::planner
