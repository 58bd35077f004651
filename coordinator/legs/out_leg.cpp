#include "coordinator/legs/out_leg.h"

#include <utility>

namespace terrace::legs {
namespace {

class OutLeg final : public Leg {
 public:
  OutLeg(std::string name, LegKind kind, LegState state, std::string why)
      : name_(std::move(name)), kind_(kind), state_(state), why_(ErrorCode::kPeerGone, std::move(why)) {}
  const std::string& name() const override { return name_; }
  LegKind kind() const override { return kind_; }
  LegState state() const override { return state_; }
  std::uint64_t experts() const override { return 0; }
  Result<Ticket> submit(const LegBatch&) override { return why_; }
  Status collect(Ticket, kernels::SumsView, std::span<std::uint8_t>) override { return why_; }
  LegCounters counters() const override { return {}; }
  const Error* why_out() const override { return &why_; }

 private:
  const std::string name_;
  const LegKind kind_;
  const LegState state_;
  const Error why_;
};

}  // namespace

std::shared_ptr<Leg> make_out_leg(std::string name, LegKind kind, LegState state, std::string why) {
  return std::make_shared<OutLeg>(std::move(name), kind, state, std::move(why));
}

}  // namespace terrace::legs
