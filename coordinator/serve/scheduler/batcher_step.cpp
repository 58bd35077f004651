#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "coordinator/serve/scheduler/batcher.h"

namespace terrace::serve {

bool Batcher::plan_step() {
  sort_by_age();
  give_streams();
  plan_rows();
  return !rows_.empty();
}

void Batcher::take_step() {
  const auto begin = Clock::now();
  const Result<arch::StepResult> result = run_rows();
  const auto end = Clock::now();
  if (before_telling_) before_telling_();
  if (result.ok()) {
    told_.step_error.reset();
    take_results(*result, begin, end);
  } else if (result.error().code() == ErrorCode::kUncertain) {
    roll_back(result.error());
  } else {
    fail_step(result.error());
  }
  if (after_telling_) after_telling_();
}

void Batcher::sort_by_age() {
  by_age_.clear();
  for (Slot& slot : slots_)
    if (slot.run != nullptr) by_age_.push_back(&slot);
  std::ranges::sort(by_age_, {}, [](const Slot* slot) { return slot->age; });
}

// ---- who has a stream -----------------------------------------------------------------------------------------------

// A run that gave its memory back has its turn once another has ended, or nobody runs; younger ones wait behind it.
void Batcher::give_streams() {
  for (Slot* slot : by_age_) {
    if (slot->stream) continue;
    if (slot->preempted) {
      const bool nobody_runs = std::ranges::none_of(by_age_, [](const Slot* s) { return s->stream.has_value(); });
      if (!nobody_runs && !std::exchange(room_again_, false)) return;
    }
    give_stream(*slot);
  }
}

// The longest beginning of the slot's tokens, short of the last, that a stream holds.
std::optional<Batcher::Source> Batcher::find_source(const Slot& slot) const {
  const auto tokens = slot.run->tokens();
  const auto most = static_cast<std::uint32_t>(tokens.size() - 1);
  std::optional<Source> best;
  if (const auto match = resting_.find(tokens, most))
    best = Source{.resting = match->index, .stream = resting_[match->index].stream, .common = match->common};
  for (const Slot& other : slots_) {
    if (!other.stream) continue;
    const std::uint32_t common = std::min(most, common_prefix(tokens, other.run->tokens().first(stored(other))));
    if (common > 0 && (!best || common > best->common)) best = Source{{}, *other.stream, common};
  }
  return best;
}

// Whether another run is about to compute at least half of what the slot's prompt lacks beyond the first `have` tokens.
bool Batcher::waits_for_prefix(const Slot& slot, std::uint32_t have) const {
  const auto tokens = slot.run->tokens();
  const auto most = static_cast<std::uint32_t>(tokens.size() - 1);
  return std::ranges::any_of(slots_, [&](const Slot& other) {
    if (!other.stream) return false;
    const std::uint32_t common = std::min(most, common_prefix(tokens, other.run->tokens()));
    return common > stored(other) && common > have && common - have >= (most - have + 1) / 2;
  });
}

void Batcher::give_stream(Slot& slot) {
  for (;;) {
    std::optional<Source> source;
    if (slot.run->request().reuse_prefix) {
      source = find_source(slot);
      if (waits_for_prefix(slot, source ? source->common : 0)) return;
    }
    const Result<arch::StreamId> stream =
        source ? trunk_.fork_stream(source->stream, source->common) : trunk_.open_stream();
    if (!stream.ok()) {  // all are in use: spare ones are there, so resting sequences hold them
      if (source && source->resting) resting_.touch(*source->resting);
      TERRACE_CHECK(resting_.evict(), "a trunk with spare streams has one for each slot");
      continue;
    }
    slot.stream = *stream;
    const std::uint32_t common = source ? source->common : 0;
    resting_.leave_slot(index_of(slot));
    if (source && source->resting) {
      const Sequence& used = resting_[*source->resting];
      const bool is_contained = used.tokens.size() == common && !used.slot;
      is_contained ? resting_.forget(*source->resting) : resting_.touch(*source->resting);
    }
    if (!std::exchange(slot.preempted, false)) {
      told_.counters.prompt_tokens_cached += common;
    } else {
      --n_preempted_;
    }
    return slot.run->begin(common, Clock::now());
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

void Batcher::plan_rows() {
  rows_.clear();
  prompts_.clear();
  n_decoding_ = n_prompt_rows_ = 0;
  for (Slot* slot : by_age_) {
    slot->n_rows = 0;
    if (!slot->stream) continue;
    const auto left = static_cast<std::uint32_t>(slot->run->tokens().size() - stored(*slot));
    if (left > 1) {
      prompts_.push_back({.left = left, .rows = 0, .index = index_of(*slot)});
    } else {
      slot->n_rows = 1;
      ++n_decoding_;
      if (slot->run->made() == 0) ++n_prompt_rows_;
    }
  }
  const auto most = static_cast<std::uint32_t>(trunk_.max_rows());
  share_rows(prompts_, n_decoding_ == 0 ? most : std::min(chunk_rows_, most - n_decoding_));
  for (const PromptRows& prompt : prompts_) {
    slots_[prompt.index].n_rows = prompt.rows;
    n_prompt_rows_ += prompt.rows;
  }
  for (Slot* slot : by_age_)
    if (slot->n_rows > 0) add_rows(*slot);
}

void Batcher::add_rows(Slot& slot) {
  const auto tokens = slot.run->tokens();
  const std::uint32_t first = stored(slot);
  slot.first_row = static_cast<std::uint32_t>(rows_.size());
  for (std::uint32_t position = first; position < first + slot.n_rows; ++position)
    rows_.push_back({*slot.stream, position, tokens[position], false});
  slot.wants_logits = first + slot.n_rows == tokens.size() && slot.run->makes_tokens();
  rows_.back().want_logits = slot.wants_logits;
}

// A step without memory has changed nothing: with some made, what is left of it is tried again.
Result<arch::StepResult> Batcher::run_rows() {
  for (;;) {
    Result<arch::StepResult> result = trunk_.step(rows_);
    if (result.ok() || result.error().code() != ErrorCode::kOutOfMemory || !make_room()) return result;
    plan_rows();
  }
}

bool Batcher::make_room() {
  if (resting_.evict()) return true;
  const auto has_stream = [](const Slot* slot) { return slot->stream.has_value(); };
  if (std::ranges::count_if(by_age_, has_stream) < 2) return false;
  preempt(**std::ranges::find_if(by_age_.rbegin(), by_age_.rend(), has_stream));
  return true;
}

void Batcher::preempt(Slot& slot) {
  trunk_.close_stream(*std::exchange(slot.stream, std::nullopt));
  slot.preempted = true;
  slot.n_rows = 0;
  ++n_preempted_;
  ++told_.counters.preemptions;
  room_again_ = false;
}

// ---- what the step gave ---------------------------------------------------------------------------------------------

void Batcher::take_results(const arch::StepResult& result, Clock::time_point begin, Clock::time_point end) {
  count_step(begin, end);
  // Logits come in the order of the rows, those of failed rows among them.
  choices_.clear();
  std::size_t n_logits = 0;
  for (Slot* slot : by_age_)
    if (slot->n_rows > 0 && slot->wants_logits) choices_.push_back({slot, n_logits++});
  fail_rows(result);
  std::erase_if(choices_, [](const Choice& choice) { return choice.slot->run == nullptr; });
  for (Slot* slot : by_age_) {
    if (slot->run == nullptr || slot->n_rows == 0) continue;
    slot->run->prompt_went_on(stored(*slot), end);
    if (!slot->run->makes_tokens() && stored(*slot) == slot->run->tokens().size()) finish(*slot, EndReason::kLimit);
  }
  choose_tokens(result);
  const auto now = Clock::now();
  for (const Choice& choice : choices_) take_token(*choice.slot, now);
}

void Batcher::fail_rows(const arch::StepResult& result) {
  for (const arch::FailedRow& failed : result.failed)
    for (Slot* slot : by_age_)
      if (slot->run != nullptr && failed.row >= slot->first_row && failed.row - slot->first_row < slot->n_rows)
        fail(*slot, failed.error, false);
}

void Batcher::choose_tokens(const arch::StepResult& result) {
  const std::size_t vocabulary = run_parts_.vocabulary;
  const auto choose = [&](std::size_t i, std::size_t worker) {
    const Choice& choice = choices_[i];
    const std::optional<std::int32_t> largest =
        result.largest.empty() ? std::nullopt : std::optional(result.largest[choice.logits]);
    choice.slot->run->choose(result.logits.subspan(choice.logits * vocabulary, vocabulary), largest,
                             sampler_memory_[worker]);
  };
  if (choices_.size() == 1) return choose(0, 0);
  if (choices_.size() > 1) parallel_.run(choices_.size(), choose);
}

void Batcher::take_token(Slot& slot, Clock::time_point now) {
  Run& run = *slot.run;
  const bool is_first = run.made() == 0;
  const auto before = is_first ? run.submitted() : run.last_event();
  const Result<std::optional<EndReason>> reason = run.take_token(now, trunk_.last_step());
  if (!reason.ok()) return fail(slot, reason.error(), true);
  ++told_.counters.tokens;
  (is_first ? told_.first_token_seconds : told_.token_seconds).add(ms_between(before, now) / 1000);
  auto& longest = told_.counters.longest_tokens;
  longest = std::max(longest, static_cast<std::uint32_t>(run.tokens().size()));
  if (*reason) finish(slot, **reason);
}

// What was stored before is as it was, and can be reused.
void Batcher::fail_step(const Error& error) {
  ++told_.counters.steps_failed;
  told_.step_error = error;
  const auto has_rows = [](const Slot* slot) { return slot->n_rows > 0; };
  if (on_step_failed_) on_step_failed_(error, static_cast<std::size_t>(std::ranges::count_if(by_age_, has_rows)));
  for (Slot* slot : by_age_)
    if (slot->n_rows > 0) fail(*slot, error, true);
}

// A node was found to compute wrong. The steps that follow compute again what is cut here.
void Batcher::roll_back(const Error& why) {
  ++told_.counters.roll_backs;
  const std::uint64_t since = trunk_.uncertain_since();
  if (on_roll_back_) on_roll_back_(why, ended_since(since));
  if (n_snapshots_ > 0) uncertain_ = std::min(since, uncertain_.value_or(since));
  resting_.forget_since(since);
  for (Slot* slot : by_age_) {
    const Status goes_on = slot->run->roll_back(since, why);
    if (slot->stream) {
      const auto most = static_cast<std::uint32_t>(slot->run->tokens().size() - 1);  // the last one's logits are wanted
      if (trunk_.forget_since(*slot->stream, since) > most) trunk_.truncate(*slot->stream, most);
    }
    if (!goes_on.ok()) fail(*slot, goes_on.error(), true);
  }
}

// Of the last so many.
std::size_t Batcher::ended_since(std::uint64_t step) const {
  const auto n = static_cast<std::ptrdiff_t>(std::min(n_last_steps_, last_steps_.size()));
  return static_cast<std::size_t>(
      std::count_if(last_steps_.begin(), last_steps_.begin() + n, [&](std::uint64_t last) { return last >= step; }));
}

void Batcher::count_step(Clock::time_point begin, Clock::time_point end) {
  const double seconds = ms_between(begin, end) / 1000;
  Counters& counters = told_.counters;
  ++counters.steps;
  counters.rows += rows_.size();
  counters.prompt_tokens += n_prompt_rows_;
  counters.busy_slots += n_running_;
  (n_prompt_rows_ > 0 ? counters.prompt_seconds : counters.decode_seconds) += seconds;
  told_.step_seconds.add(seconds);
  if (!prompts_.empty() && n_decoding_ > 0) told_.mixed_step_seconds.add(seconds);
  told_.rows_per_step.add(static_cast<double>(rows_.size()));
  leg_steps_.step_ended();
}

}  // namespace terrace::serve
