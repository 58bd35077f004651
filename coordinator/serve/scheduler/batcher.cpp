#include "coordinator/serve/scheduler/batcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace terrace::serve {

Batcher::Batcher(const SchedulerParts& parts, const SchedulerOptions& options)
    : trunk_(parts.trunk),
      parallel_(parts.parallel),
      run_parts_{parts.tokenizer, parts.ops, parts.trunk.info().vocabulary, parts.trunk.context()},
      sampler_memory_(parts.parallel.n_workers(), sampler::SamplerMemory(parts.trunk.info().vocabulary)),
      chunk_rows_(options.chunk_rows),
      keeps_(options.resting_bytes > 0),
      slots_(options.slots),
      resting_(parts.trunk, options.resting_bytes),
      on_roll_back_(options.on_roll_back),
      on_step_failed_(options.on_step_failed),
      before_telling_(options.before_telling),
      after_telling_(options.after_telling),
      leg_steps_(parts.board) {
  by_age_.reserve(slots_.size());
  prompts_.reserve(slots_.size());
  choices_.reserve(slots_.size());
  rows_.reserve(trunk_.max_rows());
}

Batcher::~Batcher() {
  while (resting_.evict()) {
  }
}

bool Batcher::can_start(const Job& job) const {
  if (n_preempted_ > 0) return false;
  if (job.request.slot) return slots_[*job.request.slot].run == nullptr;
  return n_running_ < slots_.size();
}

Batcher::Slot* Batcher::free_slot_for(const Job& job) {
  return job.request.slot ? &slots_[*job.request.slot] : best_free_slot(job.request.prompt);
}

// The one whose sequence the prompt goes on with, so that others keep theirs; else one that has none; else the one that
// was used least recently.
Batcher::Slot* Batcher::best_free_slot(std::span<const std::int32_t> prompt) {
  Slot* best = nullptr;
  std::uint32_t best_common = 0;
  std::uint64_t best_used = 0;
  for (Slot& slot : slots_) {
    if (slot.run != nullptr) continue;
    const Sequence* sequence = resting_.of_slot(index_of(slot));
    const std::uint32_t common = sequence == nullptr ? 0 : common_prefix(prompt, sequence->tokens);
    const std::uint64_t used = sequence == nullptr ? 0 : slot.last_used;
    const bool better = best == nullptr || common > best_common || (common == best_common && used < best_used);
    if (!better) continue;
    best = &slot;
    best_common = common;
    best_used = used;
  }
  return best;
}

void Batcher::start(std::unique_ptr<Job> job) {
  Slot& slot = *free_slot_for(*job);
  const auto now = Clock::now();
  told_.queue_seconds.add(ms_between(job->submitted, now) / 1000);
  slot.run = std::make_unique<Run>(std::move(job), run_parts_, now);
  slot.age = slot.last_used = next_age_++;
  ++n_running_;
}

void Batcher::end(RequestId id, EndReason reason) {
  const auto slot = std::ranges::find_if(slots_, [id](const Slot& s) { return s.run != nullptr && s.run->id() == id; });
  if (slot != slots_.end()) finish(*slot, reason);
}

void Batcher::end_all(EndReason reason) {
  for (Slot& slot : slots_)
    if (slot.run != nullptr) finish(slot, reason);
}

std::span<const RequestId> Batcher::take_ended() {
  std::swap(taken_, ended_);
  ended_.clear();
  return taken_;
}

// ---- the end of a run -----------------------------------------------------------------------------------------------

void Batcher::finish(Slot& slot, EndReason reason) {
  switch (reason) {
    case EndReason::kCancelled:
      ++told_.counters.requests_cancelled;
      break;
    case EndReason::kStopping:
      ++told_.counters.requests_failed;
      break;
    default:
      ++told_.counters.requests_ended;
  }
  slot.run->end(reason, index_of(slot), stored(slot));
  release(slot, true);
}

void Batcher::fail(Slot& slot, const Error& error, bool keep) {
  ++told_.counters.requests_failed;
  slot.run->fail(error);
  release(slot, keep);
}

// keep: what its stream holds is right, and may be reused.
void Batcher::release(Slot& slot, bool keep) {
  const std::unique_ptr<Run> run = std::move(slot.run);
  ended_.push_back(run->id());
  last_steps_[n_last_steps_++ % last_steps_.size()] = run->last_step();
  --n_running_;
  if (std::exchange(slot.preempted, false)) --n_preempted_;
  room_again_ = true;
  slot.n_rows = 0;
  if (!slot.stream) return;
  const arch::StreamId stream = *std::exchange(slot.stream, std::nullopt);
  const std::uint32_t length = trunk_.length(stream);
  if (!keep || !keeps_ || length == 0) return trunk_.close_stream(stream);
  Sequence sequence{.stream = stream, .tokens = run->take_tokens(), .slot = index_of(slot)};
  sequence.tokens.resize(length);
  resting_.add(std::move(sequence));
}

// ---- what it tells --------------------------------------------------------------------------------------------------

void Batcher::describe(SchedulerStatus& status) const {
  status.slots.resize(slots_.size());
  for (const Slot& slot : slots_) {
    SlotStatus& told = status.slots[index_of(slot)];
    told = SlotStatus();
    told.id = index_of(slot);
    if (slot.run == nullptr) {
      const Sequence* sequence = resting_.of_slot(told.id);
      if (sequence != nullptr) told.stored_tokens = static_cast<std::uint32_t>(sequence->tokens.size());
      continue;
    }
    const Run& run = *slot.run;
    const std::uint32_t length = stored(slot);
    told.request = run.id();
    told.prompt_tokens = run.prompt_tokens();
    told.prompt_cached = run.cached();
    told.prompt_processed = std::min(length, told.prompt_tokens) - std::min(run.cached(), length);
    told.decoded = run.made();
    told.remaining = run.request().max_tokens == kUnlimited ? kUnlimited : run.request().max_tokens - told.decoded;
    told.has_new_line = run.has_new_line();
    told.note = run.request().note;
    told.stored_tokens = length;
    told.state = !slot.stream                       ? SlotState::kWaiting
                 : run.tokens().size() - length > 1 ? SlotState::kPrompt
                                                    : SlotState::kDecoding;
  }
  status.context = run_parts_.context;
  const std::uint64_t requests = status.counters.requests, refused = status.counters.requests_refused;
  status.counters = told_.counters;
  status.counters.requests = requests;
  status.counters.requests_refused = refused;
  status.counters.evictions = resting_.evictions();
  status.first_token_seconds = told_.first_token_seconds;
  status.token_seconds = told_.token_seconds;
  status.queue_seconds = told_.queue_seconds;
  status.step_seconds = told_.step_seconds;
  status.mixed_step_seconds = told_.mixed_step_seconds;
  status.rows_per_step = told_.rows_per_step;
  status.leg_steps.assign(leg_steps_.times().begin(), leg_steps_.times().end());
  status.step_error = told_.step_error;
  const kv::Cache& cache = trunk_.cache();
  status.cache_bytes = cache.bytes_in_use();
  status.cache_bytes_resting = cache.bytes_resting();
  status.cache_budget = cache.max_blocks() * cache.shape().block_bytes();
  status.resting_sequences = static_cast<std::uint32_t>(resting_.size());
}

// ---- slots' sequences -----------------------------------------------------------------------------------------------

Result<Sequence> Batcher::snapshot(std::uint32_t slot) {
  const Slot& from = slots_[slot];
  const Sequence* resting = resting_.of_slot(slot);
  Sequence copy;
  std::optional<arch::StreamId> stream = from.stream;
  if (from.run != nullptr) {
    const auto tokens = from.run->tokens().first(stored(from));
    copy.tokens.assign(tokens.begin(), tokens.end());
  } else if (resting != nullptr) {
    copy.tokens = resting->tokens;
    stream = resting->stream;
  }
  if (copy.tokens.empty()) return Error(ErrorCode::kNotFound, fmt::format("slot {} holds no tokens", slot));
  TERRACE_ASSIGN_OR_RETURN(copy.stream, trunk_.fork_stream(*stream, static_cast<std::uint32_t>(copy.tokens.size())));
  ++n_snapshots_;
  return copy;
}

// Nobody has cut it meanwhile, as its bytes were being read.
bool Batcher::close_snapshot(const Sequence& sequence) {
  const bool certain = !uncertain_ || trunk_.forget_since(sequence.stream, *uncertain_) == sequence.tokens.size();
  trunk_.close_stream(sequence.stream);
  n_snapshots_ -= 1;
  if (n_snapshots_ == 0) uncertain_.reset();
  return certain;
}

Result<arch::StreamId> Batcher::make_room_for(std::uint32_t positions) {
  TERRACE_ASSIGN_OR_RETURN(const arch::StreamId stream, trunk_.open_stream());
  for (;;) {
    const Status reserved = trunk_.cache().reserve(stream, positions);
    if (reserved.ok()) return stream;
    if (reserved.error().code() == ErrorCode::kOutOfMemory && resting_.evict()) continue;
    trunk_.close_stream(stream);
    return reserved.error();
  }
}

Status Batcher::adopt(std::uint32_t slot, Sequence sequence) {
  if (slots_[slot].run != nullptr) {
    trunk_.close_stream(sequence.stream);
    return Error(ErrorCode::kBusy, fmt::format("slot {} runs a request; restore into it when that has ended", slot));
  }
  const std::size_t n_tokens = sequence.tokens.size();
  trunk_.cache().commit(sequence.stream, static_cast<std::uint32_t>(n_tokens));
  resting_.forget_slot(slot);
  sequence.slot = slot;
  resting_.add(std::move(sequence));
  if (resting_.of_slot(slot) != nullptr) return {};
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("slot {}: its {} tokens need more memory than sequences without a request are given; raise "
                           "--cache-ram",
                           slot, n_tokens));
}

Result<std::uint32_t> Batcher::erase(std::uint32_t slot) {
  if (slots_[slot].run != nullptr)
    return Error(ErrorCode::kBusy, fmt::format("slot {} runs a request; erase it when that has ended", slot));
  const Sequence* sequence = resting_.of_slot(slot);
  const auto n_tokens = sequence == nullptr ? 0 : static_cast<std::uint32_t>(sequence->tokens.size());
  resting_.forget_slot(slot);
  return n_tokens;
}

}  // namespace terrace::serve
