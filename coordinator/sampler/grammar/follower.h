// What all streams of one grammar share while they follow it: the sets of places that were found, and the masks. A
// stream that comes where another one was finds both worked out.
//
// Threads  Any: one at a time has it, for as long as a token takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/automaton.h"
#include "coordinator/sampler/grammar/state_sets.h"
#include "coordinator/sampler/grammar/token_masks.h"
#include "coordinator/sampler/grammar/vocabulary_trie.h"

namespace terrace::sampler::grammar {

// A stream's place. The follower moves it when numbers change, so it stays where it is until it leaves.
struct FollowerPlace {
  SetId set = 0;
};

class Follower {
 public:
  // `automaton` is borrowed as long as this lives.
  Follower(const Automaton& automaton, std::shared_ptr<const VocabularyTrie> vocabulary);

  std::unique_ptr<FollowerPlace> begin();
  // Of another follower of the same automaton, where the place stays.
  std::unique_ptr<FollowerPlace> begin_at(Follower& other, const FollowerPlace& place);
  void leave(const FollowerPlace& place);
  bool is_alone() const;

  const VocabularyTrie& vocabulary() const { return *vocabulary_; }
  const std::shared_ptr<const VocabularyTrie>& shared_vocabulary() const { return vocabulary_; }

  // [mask_words()] the tokens whose bytes may follow; end tokens are none. `dead`: nothing may. kOutOfMemory: the
  // grammar is too ambiguous here, or others' places have taken the room.
  Status allowed(const FollowerPlace& place, bool dead, std::span<std::uint64_t> mask);
  // Moves the place on. False: the bytes are not allowed, it stays. Errors as above, likewise.
  Result<bool> step(FollowerPlace& place, std::string_view bytes);
  bool may_end(const FollowerPlace& place) const;
  bool must_end(const FollowerPlace& place) const;

 private:
  // What is kept while no stream follows.
  static constexpr std::size_t kMaxBytesAtRest = std::size_t{4} << 20;

  // With mutex_.
  void make_room();
  void forget();

  const Automaton& automaton_;
  const std::shared_ptr<const VocabularyTrie> vocabulary_;
  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<StateSets> sets_;
  std::unique_ptr<TokenMasks> masks_;
  std::vector<FollowerPlace*> places_;  // of the streams
};

}  // namespace terrace::sampler::grammar
