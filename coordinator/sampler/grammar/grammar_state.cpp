#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/follower.h"
#include "coordinator/sampler/grammar/grammar.h"

namespace terrace::sampler {

using grammar::Follower;

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyTrie> vocabulary)
    : grammar_(std::move(grammar)),
      follower_(grammar_->follower(std::move(vocabulary))),
      place_(follower_->begin()),
      mask_(follower_->vocabulary().mask_words()) {}

GrammarState::GrammarState(GrammarState&&) noexcept = default;

GrammarState& GrammarState::operator=(GrammarState&& other) noexcept {
  if (this == &other) return *this;
  leave();
  grammar_ = std::move(other.grammar_);
  follower_ = std::move(other.follower_);
  place_ = std::move(other.place_);
  mask_ = std::move(other.mask_);
  ended_ = other.ended_;
  return *this;
}

GrammarState::~GrammarState() { leave(); }

void GrammarState::leave() {
  if (place_ != nullptr) follower_->leave(*place_);
  place_.reset();
}

// Where others have taken the room, or might have: the limits then hold for this stream alone, as if nobody were
// beside it. False: they do already.
bool GrammarState::follow_alone() {
  if (follower_->is_alone()) return false;
  auto own = std::make_shared<Follower>(grammar_->automaton(), follower_->shared_vocabulary());
  auto place = own->begin_at(*follower_, *place_);
  leave();
  follower_ = std::move(own);
  place_ = std::move(place);
  return true;
}

Result<std::span<const std::uint64_t>> GrammarState::allowed_tokens() {
  Status found = follower_->allowed(*place_, ended_, mask_);
  if (!found.ok() && follow_alone()) found = follower_->allowed(*place_, ended_, mask_);
  if (!found.ok()) return found.error();
  if (may_end() && !ended_)
    for (const std::int32_t id : follower_->vocabulary().end_tokens())
      mask_[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << static_cast<std::size_t>(id) % 64;
  return std::span<const std::uint64_t>(mask_);
}

Status GrammarState::accept(std::int32_t token) {
  const VocabularyTrie& vocabulary = follower_->vocabulary();
  const auto refused = [&](const char* why) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("token {} cannot follow here: {}", token, why));
  };
  if (ended_) return refused("the text has ended");
  if (token < 0 || static_cast<std::size_t>(token) >= vocabulary.vocab_size())
    return refused("it is beyond the vocabulary");
  if (vocabulary.is_end_token(token)) {
    if (!may_end()) return refused("the text is not complete");
    ended_ = true;
    return {};
  }
  const std::string_view bytes = vocabulary.bytes(token);
  if (bytes.empty()) return refused("a grammar allows no control token");
  Result<bool> is_allowed = follower_->step(*place_, bytes);
  if (!is_allowed.ok() && follow_alone()) is_allowed = follower_->step(*place_, bytes);
  if (!is_allowed.ok()) return is_allowed.error();
  if (!*is_allowed) return refused("the grammar does not allow its text");
  return {};
}

void GrammarState::restart() {
  leave();
  place_ = follower_->begin();
  ended_ = false;
}

bool GrammarState::may_end() const { return follower_->may_end(*place_); }

bool GrammarState::must_end() const { return follower_->must_end(*place_); }

}  // namespace terrace::sampler
