#include "coordinator/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/utf8.h"

namespace terrace::text {

struct Tokenizer::Scratch {
  std::string shown;                     // a fragment with U+FFFD for each bad byte
  std::vector<std::size_t> bad_offsets;  // where those stand in `shown`
  std::vector<std::size_t> piece_ends;
  Bpe::Scratch bpe;
};

namespace {

// Writes `raw` with U+FFFD for each of its bad bytes to `shown`, and their offsets in `shown` to `bad_offsets`.
void show_bad_bytes(std::string_view raw, std::string& shown, std::vector<std::size_t>& bad_offsets) {
  shown.clear();
  bad_offsets.clear();
  while (!raw.empty()) {
    const Utf8Step step = utf8_step(raw);
    if (step.kind == Utf8Kind::kCharacter) {
      shown += raw.substr(0, step.length);
    } else {
      for (std::size_t i = 0; i < step.length; ++i) {
        bad_offsets.push_back(shown.size());
        shown += kReplacementCharacter;
      }
    }
    raw.remove_prefix(step.length);
  }
}

// Turns piece ends in the shown text into piece ends in the raw text, where each bad character is one byte.
void to_raw_offsets(const std::vector<std::size_t>& bad_offsets, std::vector<std::size_t>& ends) {
  std::size_t n_bad = 0;
  for (std::size_t& end : ends) {
    while (n_bad < bad_offsets.size() && bad_offsets[n_bad] < end) ++n_bad;
    end -= n_bad * (kReplacementCharacter.size() - 1);
  }
}

}  // namespace

// A part of the text in which one set of tokens is found.
struct Tokenizer::Zone {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool special = false;
};

// They cover the text. Ranges beyond it or out of order are our own bug.
std::vector<Tokenizer::Zone> Tokenizer::zones(std::string_view text, const EncodeOptions& options) {
  std::vector<Zone> parts;
  std::size_t at = 0;
  for (const TextRange& plain : options.plain) {
    TERRACE_CHECK(at <= plain.begin && plain.begin <= plain.end && plain.end <= text.size(),
                  "plain ranges of the text");
    parts.push_back({at, plain.begin, options.parse_special});
    parts.push_back({plain.begin, plain.end, false});
    at = plain.end;
  }
  parts.push_back({at, text.size(), options.parse_special});
  return parts;
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the text has {} bytes; at most {} are encoded at once", text.size(), kMaxTextBytes));
  std::vector<Zone> parts = zones(text, options);
  std::string replaced;
  if (has_bad_byte_without_token(text)) {
    for (Zone& zone : parts) {
      const std::string part = replace_bad_utf8(text.substr(zone.begin, zone.end - zone.begin));
      zone.begin = replaced.size();
      replaced += part;
      zone.end = replaced.size();
    }
    text = replaced;
  }

  std::vector<std::int32_t> ids;
  Scratch scratch;
  std::size_t done = 0;
  for (const Zone& zone : parts) {
    const SpecialMatcher& matcher = zone.special ? special_ : user_defined_;
    while (const auto match = matcher.find(text.substr(0, zone.end), std::max(done, zone.begin))) {
      TERRACE_RETURN_IF_ERROR(encode_fragment(text.substr(done, match->begin - done), scratch, ids));
      ids.push_back(match->id);
      done = match->begin + match->length;
    }
  }
  TERRACE_RETURN_IF_ERROR(encode_fragment(text.substr(done), scratch, ids));
  return ids;
}

bool Tokenizer::has_bad_byte_without_token(std::string_view text) const {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kCharacter) {
      const auto has_no_token = [this](char c) { return !bpe_.has_byte(static_cast<std::uint8_t>(c)); };
      if (std::ranges::any_of(text.substr(0, step.length), has_no_token)) return true;
    }
    text.remove_prefix(step.length);
  }
  return false;
}

Status Tokenizer::encode_fragment(std::string_view raw, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (is_utf8(raw)) {
    TERRACE_RETURN_IF_ERROR(pre_.split(raw, scratch.piece_ends));
  } else {
    show_bad_bytes(raw, scratch.shown, scratch.bad_offsets);
    TERRACE_RETURN_IF_ERROR(pre_.split(scratch.shown, scratch.piece_ends));
    to_raw_offsets(scratch.bad_offsets, scratch.piece_ends);
  }
  std::size_t begin = 0;
  for (const std::size_t end : scratch.piece_ends) {
    encode_piece(raw.substr(begin, end - begin), scratch, ids);
    begin = end;
  }
  return {};
}

void Tokenizer::encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
    ids.push_back(whole->second);
    return;
  }
  bpe_.encode(piece, scratch.bpe, ids);
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids, const DecodeOptions& options) const {
  std::string out;
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= size())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} is no token id; the vocabulary has 0 to {}", id, size() - 1));
    out += bytes(id, options);
  }
  return out;
}

std::string_view Tokenizer::bytes(std::int32_t id, const DecodeOptions& options) const {
  const auto index = static_cast<std::size_t>(id);
  TERRACE_CHECK(id >= 0 && index < size(), "a token id beyond the vocabulary");
  const bool special = types_[index] == TokenType::kControl || types_[index] == TokenType::kUnknown;
  if (special && !options.special) return {};
  return {token_bytes_.data() + token_begin_[index], token_begin_[index + 1] - token_begin_[index]};
}

bool Tokenizer::is_stop(std::int32_t id) const { return std::ranges::binary_search(stop_ids_, id); }

}  // namespace terrace::text
