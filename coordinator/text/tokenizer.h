// Text to token ids and back, for byte-level BPE vocabularies (`tokenizer.ggml.model` = "gpt2").
//
// Encoding   Special tokens are found in the raw text (leftmost first, the longest at a place); what lies between two
//            of them is cut by the pre-tokenizer's patterns, and each piece is merged on its own.
// Not UTF-8  Bad bytes are kept: they are cut as U+FFFD would be and encoded as their byte tokens, so that decoding
//            gives the input back. A text with a bad byte for which the vocabulary has no byte token is encoded with
//            U+FFFD for each of its maximal ill-formed subparts instead.
// Threads    Immutable once made: const functions may be called by any number of threads at once.
// Source     docs/formats.md; GPT-2's encoder.py; the GGUF key list of ggml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "coordinator/text/bpe.h"
#include "coordinator/text/pre_tokenizer.h"
#include "coordinator/text/special_matcher.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::text {

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct EncodeOptions {
  // Control and unknown tokens are found in the text. Without it their text is plain text, as user content should be.
  // User-defined tokens are always found.
  bool parse_special = false;
  // With parse_special: where the text is plain all the same. Rising, disjoint, whole characters. Only what is found
  // before the text is cut knows these borders: normal tokens may cross them.
  std::span<const TextRange> plain = {};
};

struct DecodeOptions {
  // Control and unknown tokens become their text; without it they are left out.
  bool special = true;
};

class Tokenizer {
 public:
  // One call takes at most so much text.
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

  // Checks the whole vocabulary.
  //   kUnsupported  another tokenizer model, or a pre-tokenizer that this build does not know; names it and the known
  //   kCorrupt      token types, ids or merges that contradict the token list; names key, place, found and allowed
  // What is odd and lawful becomes a note: tokens that stand twice (the first is used), normal tokens outside the byte
  // alphabet (never produced), bytes without a token (left out of texts), merges of what is no token (left out).
  static Result<Tokenizer> make(Vocabulary vocabulary);

  // Ids of `text`, without BOS or EOS. kInvalidArgument: longer than kMaxTextBytes. kInternal: PCRE2 gave up.
  Result<std::vector<std::int32_t>> encode(std::string_view text, const EncodeOptions& options) const;

  // The bytes of all ids, joined; not always UTF-8. kInvalidArgument names an id that is no token.
  Result<std::string> decode(std::span<const std::int32_t> ids, const DecodeOptions& options) const;

  // The bytes of one token, valid as long as the tokenizer. `id` must be a token.
  std::string_view bytes(std::int32_t id, const DecodeOptions& options) const;

  // The token as the file writes it: normal ones in the byte alphabet. `id` must be a token.
  std::string_view text(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return tokens_.size(); }
  // Bytes of the longest token.
  std::size_t longest_token() const { return longest_token_; }

  // Set where texts begin with BOS (the file says so, or else the pre-tokenizer) and the file names the token.
  std::optional<std::int32_t> leading_bos() const { return leading_bos_; }
  // Set where texts end with EOS (the file says so).
  std::optional<std::int32_t> trailing_eos() const { return trailing_eos_; }
  std::optional<std::int32_t> bos() const { return bos_; }
  std::optional<std::int32_t> eos() const { return eos_; }

  // The tokens that end a generation, rising: eos, eot, eom and fill-in-the-middle ids that the file names, and tokens
  // with the text of a known end mark.
  std::span<const std::int32_t> stop_ids() const { return stop_ids_; }
  bool is_stop(std::int32_t id) const;

  const std::string& chat_template() const { return chat_template_; }
  // What the user should be told about this vocabulary, a sentence each.
  std::span<const std::string> notes() const { return notes_; }

 private:
  friend class TokenizerBuilder;
  struct Scratch;
  struct Zone;
  static std::vector<Zone> zones(std::string_view text, const EncodeOptions& options);
  Tokenizer(PreTokenizer pre, Bpe bpe, SpecialMatcher user_defined, SpecialMatcher special)
      : pre_(std::move(pre)),
        bpe_(std::move(bpe)),
        user_defined_(std::move(user_defined)),
        special_(std::move(special)) {}
  Status encode_fragment(std::string_view raw, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  bool has_bad_byte_without_token(std::string_view text) const;

  PreTokenizer pre_;
  Bpe bpe_;
  SpecialMatcher user_defined_;
  SpecialMatcher special_;                                           // user-defined, control and unknown tokens
  std::unordered_map<std::string_view, std::int32_t> whole_pieces_;  // bytes -> id; empty without ignore_merges

  std::vector<std::string> tokens_;
  std::vector<TokenType> types_;
  std::vector<char> token_bytes_;         // the bytes of all tokens; whole_pieces_ looks into it
  std::vector<std::size_t> token_begin_;  // [n_tokens + 1] offsets into token_bytes_
  std::size_t longest_token_ = 0;

  std::optional<std::int32_t> leading_bos_, trailing_eos_, bos_, eos_;
  std::vector<std::int32_t> stop_ids_;
  std::string chat_template_;
  std::vector<std::string> notes_;
};

}  // namespace terrace::text
