#include "coordinator/legs/epoch.h"

#include <utility>

#include "common/base/check.h"

namespace terrace::legs {

std::shared_ptr<const Epoch> make_epoch(OwnerTable owners, std::vector<std::shared_ptr<Leg>> legs) {
  TERRACE_CHECK(legs.size() == owners.n_legs(), "the owner table names other legs");
  std::vector<std::uint64_t> acknowledged(legs.size(), owners.epoch());
  return std::make_shared<const Epoch>(Epoch{std::move(owners), std::move(legs), std::move(acknowledged)});
}

}  // namespace terrace::legs
