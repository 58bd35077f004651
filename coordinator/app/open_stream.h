// A stream of the trunk that is closed when its owner leaves.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "coordinator/arch/trunk.h"

namespace terrace::app {

// Of the tokens of one step.
enum class WantLogits : std::uint8_t { kNone, kLast, kAll };

class OpenStream {
 public:
  // Errors as Trunk::open_stream().
  static Result<OpenStream> open(arch::Trunk& trunk);
  // Another one, which holds this one's first `positions`, at most length(). Errors as Trunk::fork_stream().
  Result<OpenStream> fork(std::uint32_t positions) const;
  OpenStream(OpenStream&& other) noexcept;
  OpenStream& operator=(OpenStream&&) = delete;
  ~OpenStream();

  // Computes `tokens` (not empty) at the stream's end. Gives the logits asked for, [tokens that want them, vocabulary],
  // valid until the trunk's next step. Errors as Trunk::step(), or that of the first row that failed.
  Result<std::span<const float>> step(std::span<const std::int32_t> tokens, WantLogits want);
  // Takes the cache's memory for so many further positions now, as far as there is any: kv::Cache::set_aside().
  void set_aside(std::uint32_t positions) { trunk_->cache().set_aside(id_, length() + positions); }
  // Of the last step that wanted logits, for its last token: the id of the largest, the lowest of equal ones, where the
  // trunk has looked for it.
  std::optional<std::int32_t> largest() const { return largest_; }
  std::uint32_t length() const { return trunk_->length(id_); }  // positions computed
  // The number of the trunk's last step; after an error kUncertain, the first step that is not certain.
  std::uint64_t last_step() const { return trunk_->last_step(); }
  std::uint64_t uncertain_since() const { return trunk_->uncertain_since(); }
  // After an error kUncertain: keeps what is certain, and at most the first `most` positions.
  void forget_uncertain(std::size_t most);

 private:
  OpenStream(arch::Trunk& trunk, arch::StreamId id) : trunk_(&trunk), id_(id) {}
  arch::Trunk* trunk_;
  arch::StreamId id_;
  std::vector<arch::StepRow> rows_;
  std::optional<std::int32_t> largest_;
};

// A line on stderr, also with --quiet: why tokens are computed again that nobody has seen.
void tell_roll_back(const Error& why);

}  // namespace terrace::app
