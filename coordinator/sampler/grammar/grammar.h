// Constrained sampling: a grammar says which texts are allowed, and at each token which tokens may follow.
//
// Grammar       what is allowed, compiled to a pushdown automaton over bytes. One for all streams that want the same.
// GrammarState  where one stream stands in it. Per token: allowed_tokens() -> Sampler::sample(..., mask) ->
// accept().
//
//   TERRACE_ASSIGN_OR_RETURN(auto grammar, Grammar::from_json_schema(R"({"type": "integer"})"));
//   GrammarState state(grammar, trie);                                    // trie: one per tokenizer
//   TERRACE_ASSIGN_OR_RETURN(auto mask, state.allowed_tokens());
//   TERRACE_ASSIGN_OR_RETURN(auto token, sampler.sample(logits, index, history, mask));
//   TERRACE_RETURN_IF_ERROR(state.accept(token));                         // an end token ends the stream
//
// Every text is allowed that some sequence of tokens can still complete: a token may end inside a character, a word or
// a JSON token. Control tokens are never allowed, tokens that end a generation only where the grammar may end.
//
// Notations
//   GBNF         llama.cpp's: docs/grammars.md. Code points, not bytes: "\xe9" is U+00E9, two bytes.
//   JSON schema  each keyword is held or refused by name with its place, none is ignored: docs/grammars.md has the
//   table.
// Sources: GBNF as described in llama.cpp's grammars/README.md; JSON Schema 2020-12; RFC 8259.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/sampler/grammar/vocabulary_trie.h"

namespace terrace::sampler {

namespace grammar {
class Automaton;
class Follower;
struct FollowerPlace;
}  // namespace grammar

class Grammar {
 public:
  // Sizes of what is accepted, checked before anything large is made. A text beyond one is an error that names it.
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxNesting = 64;            // of groups, of a schema's objects
  static constexpr std::uint32_t kMaxRepetition = 100'000;  // the numbers of x{m,n}, minLength, maxItems, ...

  // The grammar's rules start at `root`. kInvalidArgument: names line, column (in characters, from 1) and what is wrong
  // there: notation, an undefined or doubly defined rule, no root, left recursion, a rule that no text can end, a
  // limit.
  static Result<std::shared_ptr<const Grammar>> from_gbnf(std::string_view text);

  // One JSON value that is valid against the schema, which is given as JSON text. Properties come in the schema's
  // order; at most one white-space character stands between two JSON tokens, none before or after the value.
  //   kInvalidArgument  not JSON, a keyword's value is not what it must be, no value can be valid, a limit
  //   kUnsupported      a keyword, or a use of one, that cannot be held
  // Both name the place as a JSON pointer: "schema, /properties/size/multipleOf: ...".
  static Result<std::shared_ptr<const Grammar>> from_json_schema(std::string_view schema);

  // Any JSON object (`response_format` json_object).
  static std::shared_ptr<const Grammar> json_object();
  static constexpr std::string_view kAnyObject = R"({"type": "object"})";  // its schema

  const grammar::Automaton& automaton() const { return *automaton_; }

  // What streams over this vocabulary share: of the first vocabulary that asks, one for all, which stays with the
  // grammar; of another one, a new one. Any thread.
  std::shared_ptr<grammar::Follower> follower(std::shared_ptr<const VocabularyTrie> vocabulary) const;

  explicit Grammar(std::unique_ptr<const grammar::Automaton> automaton);  // from the functions above
  ~Grammar();

 private:
  std::unique_ptr<const grammar::Automaton> automaton_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<grammar::Follower> follower_;  // null until a stream follows
};

// One stream's place in its grammar. Movable, not copyable; a second choice of a request begins its own.
// Cost: masks are kept by place, for all streams of the grammar, so that one that stays in a place (inside a string),
// or comes where another one was, does not pay for it again; memory is bounded and forgotten places are found again.
// Nothing is allocated for a place already seen. Threads: one call at a time; streams of one grammar on any.
class GrammarState {
 public:
  GrammarState(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyTrie> vocabulary);
  GrammarState(GrammarState&&) noexcept;
  GrammarState& operator=(GrammarState&&) noexcept;
  ~GrammarState();

  // The tokens that may follow, as Sampler::sample() takes them: [vocabulary.mask_words()], bit id % 64 of word id /
  // 64, bits beyond the vocabulary 0. Valid until the next call of a non-const function. May be all 0: the vocabulary
  // has no token for what the grammar wants (sample() then says so), or the stream has ended. kOutOfMemory: the grammar
  // is so ambiguous here that following all readings passes a limit, which is named.
  Result<std::span<const std::uint64_t>> allowed_tokens();

  // Moves on by a token. An end token ends the stream.
  //   kInvalidArgument  the token is not allowed here (the place stays as it was)
  //   kOutOfMemory      as above
  Status accept(std::int32_t token);

  // To the beginning of the text.
  void restart();
  // Whether the text so far is complete: end tokens are allowed.
  bool may_end() const;
  // Whether it is complete and nothing may follow: the caller may end the stream without asking the model.
  bool must_end() const;
  // Whether an end token was accepted.
  bool ended() const { return ended_; }

 private:
  void leave();
  bool follow_alone();
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<grammar::Follower> follower_;
  std::unique_ptr<grammar::FollowerPlace> place_;
  std::vector<std::uint64_t> mask_;  // [mask_words()]
  bool ended_ = false;
};

}  // namespace terrace::sampler
