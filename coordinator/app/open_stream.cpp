#include "coordinator/app/open_stream.h"

#include <utility>

#include "common/base/console.h"

namespace terrace::app {

Result<OpenStream> OpenStream::open(arch::Trunk& trunk) {
  TERRACE_ASSIGN_OR_RETURN(const arch::StreamId id, trunk.open_stream());
  return OpenStream(trunk, id);
}

Result<OpenStream> OpenStream::fork(std::uint32_t positions) const {
  TERRACE_ASSIGN_OR_RETURN(const arch::StreamId id, trunk_->fork_stream(id_, positions));
  return OpenStream(*trunk_, id);
}

OpenStream::OpenStream(OpenStream&& other) noexcept
    : trunk_(std::exchange(other.trunk_, nullptr)), id_(other.id_), rows_(std::move(other.rows_)) {}

OpenStream::~OpenStream() {
  if (trunk_ != nullptr) trunk_->close_stream(id_);
}

Result<std::span<const float>> OpenStream::step(std::span<const std::int32_t> tokens, WantLogits want) {
  rows_.clear();
  std::uint32_t position = trunk_->length(id_);
  for (const std::int32_t token : tokens) rows_.push_back({id_, position++, token, want == WantLogits::kAll});
  rows_.back().want_logits = want != WantLogits::kNone;
  TERRACE_ASSIGN_OR_RETURN(const arch::StepResult result, trunk_->step(rows_));
  if (!result.failed.empty()) return result.failed.front().error;
  largest_ = result.largest.empty() ? std::nullopt : std::optional(result.largest.back());
  return result.logits;
}

void OpenStream::forget_uncertain(std::size_t most) {
  const std::uint32_t certain = trunk_->forget_since(id_, trunk_->uncertain_since());
  if (certain > most) trunk_->truncate(id_, static_cast<std::uint32_t>(most));
}

void tell_roll_back(const Error& why) { print_err("terrace: {}; what is not certain is computed again\n", why.text()); }

}  // namespace terrace::app
