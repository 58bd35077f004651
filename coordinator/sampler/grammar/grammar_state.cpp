#include <fmt/format.h>

#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/grammar.h"
#include "coordinator/sampler/grammar/state_sets.h"
#include "coordinator/sampler/grammar/token_masks.h"

namespace terrace::sampler {

using grammar::SetId;
using grammar::StateSets;
using grammar::TokenMasks;

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyTrie> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      sets_(std::make_unique<StateSets>(grammar_->automaton())),
      masks_(std::make_unique<TokenMasks>(*vocabulary_, *sets_)),
      current_(sets_->start()) {}

GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState& GrammarState::operator=(GrammarState&&) noexcept = default;
GrammarState::~GrammarState() = default;

Result<std::span<const std::uint64_t>> GrammarState::allowed_tokens() {
  for (bool is_second_try = false;; is_second_try = true) {
    sets_->begin_token();
    const std::span<std::uint64_t> mask = masks_->find(ended_ ? StateSets::kDead : current_);
    if (sets_->status().ok()) {
      for (const std::int32_t id : vocabulary_->end_tokens()) {
        const auto bit = std::uint64_t{1} << static_cast<std::size_t>(id) % 64;
        if (may_end() && !ended_) mask[static_cast<std::size_t>(id) / 64] |= bit;
      }
      return std::span<const std::uint64_t>(mask);
    }
    if (is_second_try) return sets_->status().error();
    forget();  // what was kept of earlier tokens may have taken the room
  }
}

Status GrammarState::accept(std::int32_t token) {
  const auto refused = [&](const char* why) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("token {} cannot follow here: {}", token, why));
  };
  if (ended_) return refused("the text has ended");
  if (token < 0 || static_cast<std::size_t>(token) >= vocabulary_->vocab_size())
    return refused("it is beyond the vocabulary");
  if (vocabulary_->is_end_token(token)) {
    if (!may_end()) return refused("the text is not complete");
    ended_ = true;
    return {};
  }
  const std::string_view bytes = vocabulary_->bytes(token);
  if (bytes.empty()) return refused("a grammar allows no control token");
  if (sets_->is_full()) forget();
  sets_->begin_token();
  SetId next = current_;
  for (const char byte : bytes) next = sets_->step(next, static_cast<std::uint8_t>(byte));
  if (!sets_->status().ok()) return sets_->status().error();
  if (next == StateSets::kDead) return refused("the grammar does not allow its text");
  current_ = next;
  return {};
}

void GrammarState::restart() {
  if (sets_->is_full()) forget();
  sets_->begin_token();
  current_ = sets_->start();
  ended_ = false;
}

bool GrammarState::may_end() const { return sets_->may_end(current_); }

bool GrammarState::must_end() const { return may_end() && sets_->places(current_).empty(); }

void GrammarState::forget() {
  current_ = sets_->compact(current_);
  masks_->clear();
}

}  // namespace terrace::sampler
