#include "coordinator/sampler/grammar/state_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace terrace::sampler::grammar {
namespace {

std::uint64_t hash_of(const StateSets::Place& place) { return mix(mix(place.stack, place.state), place.counter); }

}  // namespace

StateSets::StateSets(const Automaton& automaton)
    : automaton_(automaton),
      classes_(automaton.classes()),
      n_classes_(automaton.n_classes()),
      frames_(2),  // kBottom and kUnknown
      sets_(1),    // kDead
      next_(n_classes_, kDead),
      return_to_(2, kDead) {}

SetId StateSets::start() {
  begin_closure();
  reach({kBottom, automaton_.start(), 0});
  return close();
}

SetId StateSets::set_of(std::span<const Place> places) {
  begin_closure();
  found_.assign(places.begin(), places.end());
  return intern();
}

SetId StateSets::return_from(StackId stack) {
  if (return_to_[stack] != kNotYet) return return_to_[stack];
  const Frame frame = frames_[stack];
  begin_closure();
  reach({frame.below, frame.state, frame.counter});
  const SetId set = close();
  return return_to_[stack] = set;
}

SetId StateSets::find_step(SetId set, std::size_t byte_class) {
  const std::uint8_t byte = automaton_.byte_of_class(byte_class);
  begin_closure();
  work_ += sets_[set].n;
  for (const Place& place : places(set))
    for (const Edge& edge : automaton_.edges(place.state))
      if (edge.kind == Edge::Kind::kBytes && edge.low <= byte && byte <= edge.high)
        reach({place.stack, edge.target, place.counter});
  const SetId next = close();
  return next_[set * n_classes_ + byte_class] = next;
}

void StateSets::begin_closure() {
  found_.clear();
  unfollowed_.clear();
  reached_.clear();
  remembered_.clear();
  reached_numbers_.clear();
  found_end_ = false;
  found_unknown_ = false;
}

void StateSets::reach(const Place& place) {
  // Mostly a handful is reached: looking at all of them is then faster than a table.
  constexpr std::size_t kFew = 16;
  if (reached_.size() < kFew) {
    if (std::ranges::find(reached_, place) != reached_.end()) return;
  } else {
    if (reached_.size() == kFew)
      for (const Place& one : reached_) remember(one);
    if (!remember(place)) return;
  }
  unfollowed_.push_back(place);
  reached_.push_back(place);
}

// False: it was already.
bool StateSets::remember(const Place& place) {
  bool is_new = false;
  reached_numbers_.find_or_make(
      hash_of(place), [&](std::uint32_t number) { return remembered_[number] == place; },
      [&] {
        is_new = true;
        remembered_.push_back(place);
        return static_cast<std::uint32_t>(remembered_.size() - 1);
      });
  return is_new;
}

// Follows all edges that take no byte, and gives the set of what was reached.
SetId StateSets::close() {
  while (!unfollowed_.empty()) {
    if (found_.size() > kMaxPlaces)
      return overflow(
          fmt::format("it is too ambiguous: there are more than {} ways to read the text so far", kMaxPlaces));
    if (++work_ > kMaxWork)
      return overflow(fmt::format("it is too ambiguous: a token takes more than {} steps", kMaxWork));
    const Place place = unfollowed_.back();
    unfollowed_.pop_back();
    follow(place);
  }
  return intern();
}

void StateSets::follow(const Place& place) {
  bool takes_bytes = false;
  for (const Edge& edge : automaton_.edges(place.state)) {
    switch (edge.kind) {
      case Edge::Kind::kBytes:
        takes_bytes = true;
        break;
      case Edge::Kind::kEpsilon:
        reach({place.stack, edge.target, place.counter});
        break;
      case Edge::Kind::kReset:
        reach({place.stack, edge.target, 0});
        break;
      case Edge::Kind::kCall:
        follow_call(place, edge);
        break;
      case Edge::Kind::kTailCall:
        reach({place.stack, edge.argument, 0});
        break;
      case Edge::Kind::kReturn:
        follow_return(place);
        break;
      case Edge::Kind::kLoop: {
        const Loop& loop = automaton_.loop(edge.argument);
        if (place.counter < loop.max) reach({place.stack, edge.target, place.counter});
        if (place.counter >= loop.min) reach({place.stack, loop.exit, 0});
        break;
      }
      case Edge::Kind::kCount: {
        const Loop& loop = automaton_.loop(edge.argument);
        const std::uint32_t count = place.counter + 1;
        reach({place.stack, edge.target, loop.max == kUnlimited ? std::min(count, loop.min) : count});
        break;
      }
    }
  }
  if (takes_bytes) found_.push_back(place);
}

void StateSets::follow_call(const Place& place, const Edge& edge) {
  const std::uint32_t depth = frames_[place.stack].depth + 1;
  if (depth > kMaxDepth) return;
  const StackId stack = push({edge.target, place.counter, place.stack, depth});
  if (stack != kBottom) reach({stack, edge.argument, 0});
}

void StateSets::follow_return(const Place& place) {
  if (place.stack == kBottom) {
    found_end_ = true;
  } else if (place.stack == kUnknown) {
    found_unknown_ = true;
  } else {
    const Frame& frame = frames_[place.stack];
    reach({frame.below, frame.state, frame.counter});
  }
}

// kBottom: no room.
StackId StateSets::push(const Frame& frame) {
  if (frames_.size() >= kMaxFrames) {
    overflow(fmt::format("a token takes more than {} stack frames", kMaxFrames));
    return kBottom;
  }
  const std::uint64_t hash = mix(mix(frame.below, frame.state), frame.counter);
  return frame_numbers_.find_or_make(
      hash, [&](std::uint32_t number) { return frames_[number] == frame; },
      [&] {
        frames_.push_back(frame);
        return_to_.push_back(kNotYet);
        return static_cast<std::uint32_t>(frames_.size() - 1);
      });
}

// The set of found_ and what else was found.
SetId StateSets::intern() {
  if (found_.empty() && !found_end_ && !found_unknown_) return kDead;
  if (next_.size() >= kMaxSteps || places_.size() >= kMaxAllPlaces)
    return overflow(fmt::format("a token takes more than {} places or {} steps", kMaxAllPlaces, kMaxSteps));
  std::ranges::sort(found_);
  std::uint64_t hash = mix(found_end_ ? 1 : 0, found_unknown_ ? 1 : 0);
  for (const Place& place : found_) hash = mix(hash, hash_of(place));
  const auto is_equal = [&](SetId id) {
    return sets_[id].may_end == found_end_ && sets_[id].leaves_unknown == found_unknown_ &&
           std::ranges::equal(places(id), found_);
  };
  return set_numbers_.find_or_make(hash, is_equal, [&] {
    sets_.push_back({static_cast<std::uint32_t>(places_.size()), static_cast<std::uint32_t>(found_.size()), found_end_,
                     found_unknown_});
    places_.insert(places_.end(), found_.begin(), found_.end());
    next_.resize(next_.size() + n_classes_, kNotYet);
    return static_cast<SetId>(sets_.size() - 1);
  });
}

SetId StateSets::overflow(std::string what) {
  if (status_.ok()) status_ = Error(ErrorCode::kOutOfMemory, std::move(what)).in("the grammar cannot be followed");
  unfollowed_.clear();
  return kDead;
}

SetId StateSets::take(const StateSets& other, SetId set) {
  const std::span<const Place> places = other.places(set);
  // Frames have larger numbers than those below them, so that rising order meets the lower ones first.
  std::vector<StackId> moved(other.frames_.size(), kBottom);
  moved[kUnknown] = kUnknown;
  std::vector<bool> used(other.frames_.size(), false);
  for (const Place& place : places) used[place.stack] = true;
  for (std::size_t i = other.frames_.size(); i-- > 2;)
    if (used[i]) used[other.frames_[i].below] = true;
  for (std::size_t i = 2; i < other.frames_.size(); ++i) {
    if (!used[i]) continue;
    Frame frame = other.frames_[i];
    frame.below = moved[frame.below];
    moved[i] = push(frame);
  }
  begin_closure();
  for (const Place& place : places) found_.push_back({moved[place.stack], place.state, place.counter});
  found_end_ = other.sets_[set].may_end;
  found_unknown_ = other.sets_[set].leaves_unknown;
  return intern();
}

}  // namespace terrace::sampler::grammar
