#include "coordinator/sampler/grammar/follower.h"

#include <algorithm>
#include <utility>

namespace terrace::sampler::grammar {

Follower::Follower(const Automaton& automaton, std::shared_ptr<const VocabularyTrie> vocabulary)
    : automaton_(automaton), vocabulary_(std::move(vocabulary)) {
  forget();
}

std::unique_ptr<FollowerPlace> Follower::begin() {
  const std::lock_guard lock(mutex_);
  make_room();
  sets_->begin_token();
  auto place = std::make_unique<FollowerPlace>(FollowerPlace{sets_->start()});
  places_.push_back(place.get());
  return place;
}

std::unique_ptr<FollowerPlace> Follower::begin_at(Follower& other, const FollowerPlace& place) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  auto moved = std::make_unique<FollowerPlace>(FollowerPlace{sets_->take(*other.sets_, place.set)});
  places_.push_back(moved.get());
  return moved;
}

void Follower::leave(const FollowerPlace& place) {
  const std::lock_guard lock(mutex_);
  std::erase(places_, &place);
  if (places_.empty() && sets_->bytes() + masks_->bytes() > kMaxBytesAtRest) forget();
}

bool Follower::is_alone() const {
  const std::lock_guard lock(mutex_);
  return places_.size() == 1;
}

// A limit that another stream has passed is none of this one's.
void Follower::make_room() {
  if (!sets_->status().ok() || sets_->is_full()) forget();
}

// All but where the streams are.
void Follower::forget() {
  auto fresh = std::make_unique<StateSets>(automaton_);
  for (FollowerPlace* place : places_) place->set = fresh->take(*sets_, place->set);
  masks_ = std::make_unique<TokenMasks>(*vocabulary_, *fresh);
  sets_ = std::move(fresh);
}

Status Follower::allowed(const FollowerPlace& place, bool dead, std::span<std::uint64_t> mask) {
  const std::lock_guard lock(mutex_);
  if (!sets_->status().ok()) forget();
  for (bool is_second_try = false;; is_second_try = true) {
    sets_->begin_token();
    const std::span<const std::uint64_t> found = masks_->find(dead ? StateSets::kDead : place.set);
    if (sets_->status().ok()) {
      std::ranges::copy(found, mask.begin());
      return {};
    }
    if (is_second_try) return sets_->status().error();
    forget();  // what was kept of earlier tokens may have taken the room
  }
}

Result<bool> Follower::step(FollowerPlace& place, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  make_room();
  sets_->begin_token();
  SetId next = place.set;
  for (const char byte : bytes) next = sets_->step(next, static_cast<std::uint8_t>(byte));
  if (!sets_->status().ok()) return sets_->status().error();
  if (next == StateSets::kDead) return false;
  place.set = next;
  return true;
}

bool Follower::may_end(const FollowerPlace& place) const {
  const std::lock_guard lock(mutex_);
  return sets_->may_end(place.set);
}

bool Follower::must_end(const FollowerPlace& place) const {
  const std::lock_guard lock(mutex_);
  return sets_->may_end(place.set) && sets_->places(place.set).empty();
}

}  // namespace terrace::sampler::grammar
