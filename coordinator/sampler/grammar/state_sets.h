// An automaton made deterministic as it is used: all places in which the automaton may be after a text are one set, and
// the set that follows by a byte is worked out once.
//
// A place is a state, its procedure's counter, and a stack of where to return to. Stacks are lists that share their
// tails; equal stacks and equal sets have one number, so that comparing them is comparing numbers.
// Bounds: kMaxPlaces in a set, kMaxWork a token, kMaxDepth on a stack, the others in all: some 50 MB. A grammar that
// needs more is too ambiguous to follow, which is an error; one that calls deeper finds that way closed, as if the text
// could not go on so. Threads: one at a time; the automaton is only read.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/intern_table.h"

namespace terrace::sampler::grammar {

using SetId = std::uint32_t;
using StackId = std::uint32_t;

class StateSets {
 public:
  static constexpr std::size_t kMaxPlaces = 2048;
  static constexpr std::size_t kMaxWork = 20'000'000;  // places looked at: some tenths of a second
  static constexpr std::uint32_t kMaxDepth = 512;
  static constexpr std::size_t kMaxSteps = 4'000'000;  // from any set by any class of bytes, 4 bytes each
  static constexpr std::size_t kMaxAllPlaces = 1'000'000;
  static constexpr std::size_t kMaxFrames = 200'000;

  // The set without places: the text is not allowed.
  static constexpr SetId kDead = 0;
  // Stacks without frames. At the end of the whole text; and where what lies below is not known, so that what happens
  // above it holds for every stack.
  static constexpr StackId kBottom = 0;
  static constexpr StackId kUnknown = 1;

  struct Place {
    StackId stack = kBottom;
    StateId state = 0;
    std::uint32_t counter = 0;
    auto operator<=>(const Place&) const = default;
  };

  // `automaton` is borrowed as long as this lives.
  explicit StateSets(const Automaton& automaton);

  const Automaton& automaton() const { return automaton_; }

  // Where every text begins.
  SetId start();
  // After one more byte; kDead if it is not allowed, and after a limit was passed (see status()).
  SetId step(SetId set, std::uint8_t byte) {
    const SetId next = next_[set * n_classes_ + classes_[byte]];
    return next == kNotYet ? find_step(set, classes_[byte]) : next;
  }
  // Places from which a byte leads on, in order, so that those of one stack lie together.
  std::span<const Place> places(SetId set) const { return std::span(places_).subspan(sets_[set].begin, sets_[set].n); }
  // Whether the text may end here.
  bool may_end(SetId set) const { return sets_[set].may_end; }
  // Whether the procedure at the bottom of an unknown stack may have returned.
  bool leaves_unknown(SetId set) const { return sets_[set].leaves_unknown; }

  // The set of just these places, which need not be in order.
  SetId set_of(std::span<const Place> places);
  // Where the procedure on top of a stack returns to; kDead at the ends.
  SetId return_from(StackId stack);

  // Before the work of each token.
  void begin_token() { work_ = 0; }
  // The first limit that was passed, after which this is of no more use but for take(): kOutOfMemory.
  const Status& status() const { return status_; }
  // Whether so much was found that the next token might not find room.
  bool is_full() const {
    return next_.size() > kMaxSteps / 2 || places_.size() > kMaxAllPlaces / 2 || frames_.size() > kMaxFrames / 2;
  }
  // The number here of a set of another one's, of the same automaton.
  SetId take(const StateSets& other, SetId set);
  // Memory of what was found.
  std::size_t bytes() const {
    return next_.size() * sizeof(SetId) + places_.size() * sizeof(Place) + frames_.size() * sizeof(Frame);
  }

 private:
  static constexpr SetId kNotYet = ~SetId{0};

  struct Frame {
    StateId state = 0;  // where to return to, with this counter
    std::uint32_t counter = 0;
    StackId below = kBottom;
    std::uint32_t depth = 0;
    bool operator==(const Frame&) const = default;
  };
  struct Set {
    std::uint32_t begin = 0;  // in places_
    std::uint32_t n = 0;
    bool may_end = false;
    bool leaves_unknown = false;
  };

  SetId find_step(SetId set, std::size_t byte_class);
  void begin_closure();
  void reach(const Place& place);
  bool remember(const Place& place);
  SetId close();
  void follow(const Place& place);
  void follow_call(const Place& place, const Edge& edge);
  void follow_return(const Place& place);
  StackId push(const Frame& frame);
  SetId intern();
  SetId overflow(std::string what);

  const Automaton& automaton_;
  std::array<std::uint8_t, 256> classes_;
  std::size_t n_classes_;

  std::vector<Frame> frames_;  // by StackId
  InternTable frame_numbers_;
  std::vector<Set> sets_;      // by SetId
  std::vector<Place> places_;  // of all sets
  InternTable set_numbers_;
  std::vector<SetId> next_;       // [sets, n_classes_]
  std::vector<SetId> return_to_;  // by StackId: the answer of return_from()
  Status status_;
  std::size_t work_ = 0;

  // Work of one closure.
  std::vector<Place> found_;       // with a byte edge
  std::vector<Place> unfollowed_;  // reached, edges not looked at
  std::vector<Place> reached_;
  std::vector<Place> remembered_;  // what reached_numbers_ numbers: all of reached_ once it is long
  InternTable reached_numbers_;
  bool found_end_ = false;
  bool found_unknown_ = false;
};

}  // namespace terrace::sampler::grammar
