// The tokenizer keys of a GGUF file as plain values. Nothing in it is checked beyond its type: Tokenizer::make() does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace terrace::gguf {
class File;
}

namespace terrace::text {

// Values of tokenizer.ggml.token_type.
enum class TokenType : std::int32_t {
  kNormal = 1,       // written in the byte alphabet
  kUnknown = 2,      // found in text like a control token
  kControl = 3,      // found in text only where special tokens are asked for
  kUserDefined = 4,  // plain text that is always one token
  kUnused = 5,
  kByte = 6,
};

struct Vocabulary {
  std::string model;                // tokenizer.ggml.model: "gpt2" is byte-level BPE
  std::optional<std::string> pre;   // tokenizer.ggml.pre
  std::vector<std::string> tokens;  // by id
  std::vector<std::int32_t> types;  // TokenType by id; empty: the file has none, all are normal
  std::vector<std::string> merges;  // "left right", best first

  // tokenizer.ggml.<name>_token_id. `eos`, `eot` (end of turn), `eom` (end of message) and the three of
  // fill-in-the-middle end a generation.
  std::optional<std::uint32_t> bos, eos, eot, eom, unk, pad, fim_pad, fim_rep, fim_sep;
  std::optional<bool> add_bos, add_eos;

  std::string chat_template;  // tokenizer.chat_template, empty: none

  // Where the keys' values lie in the file, for messages.
  std::map<std::string, std::uint64_t, std::less<>> offsets;

  std::vector<std::string> notes;  // what a user should be told and is no error, a sentence each
};

// Reads the keys of `file`.
//   kNotFound  no tokens, no model, or no merges for byte-level BPE; names the key
//   kCorrupt   a key has another type than it should, or the token list and the rows of token_embd.weight (where the
//              file has that tensor) differ in number; names the key, found and expected
Result<Vocabulary> vocabulary_from_gguf(const gguf::File& file);

}  // namespace terrace::text
