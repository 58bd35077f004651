// Tokenizer::make(): everything that is checked once, when the file is opened.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <utility>

#include "common/base/utf8.h"
#include "common/gguf/text.h"
#include "coordinator/text/byte_alphabet.h"
#include "coordinator/text/tokenizer.h"

namespace terrace::text {
namespace {

// Tokens with these texts end a generation in every vocabulary that has them (facts of the model families).
constexpr std::array<std::string_view, 19> kEndMarks = {
    "<|eot_id|>",    "<|im_end|>",    "<|end|>",         "<|return|>",
    "<|call|>",      "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>",
    "<end_of_turn>", "</s>",          "<EOT>",           "_<EOT>",
    "[EOT]",         "[EOS]",         "<eos>",           "<｜end▁of▁sentence｜>",
    "[e~[",          "<|flush|>",     "<|calls|>"};

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 60;
  return fmt::format("{:?}{}", text.substr(0, kShown), text.size() > kShown ? "..." : "");
}

Error corrupt(std::string text) { return Error(ErrorCode::kCorrupt, std::move(text)); }

// "key tokenizer.ggml.<name> (offset N)"
std::string place(const Vocabulary& vocabulary, std::string_view name) {
  const std::string key = fmt::format("tokenizer.ggml.{}", name);
  const auto at = vocabulary.offsets.find(key);
  return gguf::key_place(key, at == vocabulary.offsets.end() ? std::nullopt : std::optional(at->second));
}

// Counts cases of one kind for a note that shows the first.
struct Oddity {
  std::size_t count = 0;
  std::string first;
  template <class Describe>
  void add(Describe&& describe) {
    if (count++ == 0) first = describe();
  }
};

using IdByText = std::unordered_map<std::string_view, std::int32_t>;

Status check_model(const Vocabulary& vocabulary) {
  if (vocabulary.model == "gpt2") return {};
  return Error(ErrorCode::kUnsupported, fmt::format("{} is {}; this build has gpt2 (byte-level BPE)",
                                                    place(vocabulary, "model"), quoted(vocabulary.model)));
}

Status check_tokens(const Vocabulary& vocabulary) {
  const std::size_t n_tokens = vocabulary.tokens.size();
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
  if (n_tokens == 0 || n_tokens > kMost)
    return corrupt(
        fmt::format("{} holds {} tokens; allowed are 1 to {}", place(vocabulary, "tokens"), n_tokens, kMost));
  const auto& types = vocabulary.types;
  if (!types.empty() && types.size() != n_tokens)
    return corrupt(
        fmt::format("{} has {} entries for {} tokens", place(vocabulary, "token_type"), types.size(), n_tokens));
  const auto known = [](std::int32_t type) { return type >= 1 && type <= 6; };
  if (const auto bad = std::ranges::find_if_not(types, known); bad != types.end())
    return corrupt(fmt::format("{}: entry {} is {}; allowed are 1 to 6", place(vocabulary, "token_type"),
                               bad - types.begin(), *bad));
  return {};
}

Status check_ids(const Vocabulary& vocabulary) {
  const std::pair<const char*, std::optional<std::uint32_t>> ids[] = {
      {"bos", vocabulary.bos},         {"eos", vocabulary.eos},         {"eot", vocabulary.eot},
      {"eom", vocabulary.eom},         {"unknown", vocabulary.unk},     {"padding", vocabulary.pad},
      {"fim_pad", vocabulary.fim_pad}, {"fim_rep", vocabulary.fim_rep}, {"fim_sep", vocabulary.fim_sep}};
  for (const auto& [name, id] : ids) {
    if (id && *id >= vocabulary.tokens.size())
      return corrupt(fmt::format("{} is {}; the vocabulary has {} tokens (0 to {})",
                                 place(vocabulary, fmt::format("{}_token_id", name)), *id, vocabulary.tokens.size(),
                                 vocabulary.tokens.size() - 1));
  }
  return {};
}

Result<const PreTokenizerInfo*> choose_pre_tokenizer(const Vocabulary& vocabulary, std::vector<std::string>& notes) {
  if (!vocabulary.pre) {
    notes.emplace_back(
        "the file has no tokenizer.ggml.pre (it is old): text is cut by the pre-tokenizer \"default\", which may not "
        "be "
        "the one the model was trained with");
  }
  const std::string name = vocabulary.pre.value_or("default");
  if (const PreTokenizerInfo* info = find_pre_tokenizer(name)) return info;
  std::string known;
  for (const PreTokenizerInfo& info : all_pre_tokenizers()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
    for (const std::string_view alias : info.aliases) known += fmt::format(", {}", alias);
  }
  return Error(
      ErrorCode::kUnsupported,
      fmt::format("{} is {}, which this build does not know, and another one would give wrong ids; known are {}",
                  place(vocabulary, "pre"), quoted(name), known));
}

}  // namespace

class TokenizerBuilder {
 public:
  explicit TokenizerBuilder(Vocabulary vocabulary) : v_(std::move(vocabulary)), notes_(std::move(v_.notes)) {}

  Result<Tokenizer> build() {
    TERRACE_RETURN_IF_ERROR(check_model(v_));
    TERRACE_RETURN_IF_ERROR(check_tokens(v_));
    TERRACE_RETURN_IF_ERROR(check_ids(v_));
    TERRACE_ASSIGN_OR_RETURN(const PreTokenizerInfo* info, choose_pre_tokenizer(v_, notes_));
    TERRACE_ASSIGN_OR_RETURN(auto pre, PreTokenizer::make(*info));
    set_types();
    spell_tokens();
    Bpe bpe(byte_ids());
    TERRACE_RETURN_IF_ERROR(add_merges(bpe));
    Tokenizer made(std::move(pre), std::move(bpe), matcher({TokenType::kUserDefined}),
                   matcher({TokenType::kUserDefined, TokenType::kControl, TokenType::kUnknown}));
    set_ends_of_text(made, *info);
    made.stop_ids_ = stop_ids();
    finish(made, *info);
    return made;
  }

 private:
  TokenType type(std::size_t id) const { return types_[id]; }
  std::string_view bytes_of(std::size_t id) const { return {bytes_.data() + begin_[id], begin_[id + 1] - begin_[id]}; }
  void note(const Oddity& oddity, const char* what) {
    if (oddity.count > 0) notes_.push_back(fmt::format(fmt::runtime(what), oddity.count, oddity.first));
  }

  void set_types() {
    types_.assign(v_.tokens.size(), TokenType::kNormal);
    for (std::size_t id = 0; id < v_.types.size(); ++id) types_[id] = static_cast<TokenType>(v_.types[id]);
    if (v_.types.empty())
      notes_.emplace_back("the file has no tokenizer.ggml.token_type: every token is taken as a normal one");
  }

  // The bytes of each token, and the id of each text that merging may produce.
  void spell_tokens() {
    Oddity twice, foreign;
    IdByText seen;
    begin_.push_back(0);
    for (std::size_t id = 0; id < v_.tokens.size(); ++id) {
      const std::string& text = v_.tokens[id];
      const auto named = [&] { return fmt::format("{} {}", id, quoted(text)); };
      const bool first = seen.try_emplace(text, static_cast<std::int32_t>(id)).second;
      if (!first) twice.add(named);
      std::optional<std::string> bytes;
      if (type(id) == TokenType::kNormal) {
        bytes = alphabet_to_bytes(text);
        if (!bytes) foreign.add(named);
        if (bytes && !bytes->empty()) id_by_text_.try_emplace(text, static_cast<std::int32_t>(id));
      }
      const std::string& spelled = bytes ? *bytes : text;
      bytes_.insert(bytes_.end(), spelled.begin(), spelled.end());
      begin_.push_back(bytes_.size());
    }
    note(twice, "tokenizer.ggml.tokens: {} tokens have the text of an earlier one, which is used (the first: {})");
    note(foreign,
         "tokenizer.ggml.tokens: {} normal tokens are not written in the byte alphabet and are never produced "
         "(the first: {})");
  }

  std::array<std::int32_t, 256> byte_ids() {
    std::array<std::int32_t, 256> ids{};
    Oddity missing;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto found = id_by_text_.find(alphabet_character(static_cast<std::uint8_t>(byte)));
      ids[byte] = found == id_by_text_.end() ? Bpe::kNoToken : found->second;
      // 0xC0, 0xC1 and those above 0xF4 are never part of UTF-8, and many vocabularies lack them.
      const bool in_utf8 = byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
      if (ids[byte] == Bpe::kNoToken && in_utf8) missing.add([byte] { return fmt::format("0x{:02X}", byte); });
    }
    note(missing, "tokenizer.ggml.tokens: {} bytes have no token and are left out of texts (the first: {})");
    return ids;
  }

  Status add_merges(Bpe& bpe) {
    Oddity unknown;
    std::string joined;
    for (std::size_t i = 0; i < v_.merges.size(); ++i) {
      const std::string_view merge = v_.merges[i];
      const std::size_t space = merge.find(' ');
      if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() || space != merge.rfind(' '))
        return bad_merge(i);
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      joined.assign(left).append(right);
      const auto left_id = id_by_text_.find(left), right_id = id_by_text_.find(right), id = id_by_text_.find(joined);
      if (left_id == id_by_text_.end() || right_id == id_by_text_.end() || id == id_by_text_.end()) {
        unknown.add([&] { return fmt::format("{} {}", i, quoted(merge)); });
        continue;
      }
      bpe.add_merge(left_id->second, right_id->second, id->second);
    }
    note(unknown,
         "tokenizer.ggml.merges: {} merges have a part or a result that is no normal token and are left out "
         "(the first: {})");
    return {};
  }

  Error bad_merge(std::size_t i) const {
    return corrupt(fmt::format("{}: entry {} is {}; expected two parts with one space between them",
                               place(v_, "merges"), i, quoted(v_.merges[i])));
  }

  SpecialMatcher matcher(std::initializer_list<TokenType> types) const {
    std::vector<SpecialMatcher::Entry> entries;
    for (std::size_t id = 0; id < v_.tokens.size(); ++id) {
      const std::string& text = v_.tokens[id];
      // A text that is not UTF-8 could match inside a character.
      if (!text.empty() && std::ranges::find(types, type(id)) != types.end() && is_utf8(text))
        entries.emplace_back(text, static_cast<std::int32_t>(id));
    }
    return SpecialMatcher(std::move(entries));
  }

  // Without a key there is no BOS and no EOS: other programs then take id 11, which is a comma in most vocabularies.
  void set_ends_of_text(Tokenizer& made, const PreTokenizerInfo& info) {
    const auto id = [](std::optional<std::uint32_t> value) -> std::optional<std::int32_t> {
      if (!value) return std::nullopt;
      return static_cast<std::int32_t>(*value);
    };
    made.bos_ = id(v_.bos);
    made.eos_ = id(v_.eos);
    if (v_.add_bos.value_or(info.add_bos)) made.leading_bos_ = made.bos_;
    if (v_.add_eos.value_or(false)) made.trailing_eos_ = made.eos_;
    if (v_.add_bos.value_or(info.add_bos) && !v_.bos)
      notes_.emplace_back(
          "texts should begin with BOS, but the file has no tokenizer.ggml.bos_token_id: none is added");
    if (v_.add_eos.value_or(false) && !v_.eos)
      notes_.emplace_back("texts should end with EOS, but the file has no tokenizer.ggml.eos_token_id: none is added");
  }

  std::vector<std::int32_t> stop_ids() const {
    std::vector<std::int32_t> ids;
    for (const auto& id : {v_.eos, v_.eot, v_.eom, v_.fim_pad, v_.fim_rep, v_.fim_sep})
      if (id) ids.push_back(static_cast<std::int32_t>(*id));
    // In the vocabularies with both, <|end|> only closes one message of several.
    const auto has = [this](std::string_view text) { return std::ranges::find(v_.tokens, text) != v_.tokens.end(); };
    const bool end_goes_on = has("<|return|>") && has("<|call|>");
    for (std::size_t id = 0; id < v_.tokens.size(); ++id) {
      if (std::ranges::find(kEndMarks, v_.tokens[id]) != kEndMarks.end()) ids.push_back(static_cast<std::int32_t>(id));
    }
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (end_goes_on)
      std::erase_if(ids, [this](std::int32_t id) { return v_.tokens[static_cast<std::size_t>(id)] == "<|end|>"; });
    return ids;
  }

  void finish(Tokenizer& made, const PreTokenizerInfo& info) {
    for (std::size_t i = 0; i + 1 < begin_.size(); ++i)
      made.longest_token_ = std::max(made.longest_token_, begin_[i + 1] - begin_[i]);
    made.token_bytes_ = std::move(bytes_);
    made.token_begin_ = std::move(begin_);
    made.tokens_ = std::move(v_.tokens);
    made.types_ = std::move(types_);
    made.chat_template_ = std::move(v_.chat_template);
    made.notes_ = std::move(notes_);
    if (!info.ignore_merges) return;
    for (const auto& [text, id] : id_by_text_) made.whole_pieces_.try_emplace(made.bytes(id, {}), id);
  }

  Vocabulary v_;
  std::vector<std::string> notes_;
  std::vector<TokenType> types_;
  std::vector<char> bytes_;
  std::vector<std::size_t> begin_;
  IdByText id_by_text_;  // normal tokens in the byte alphabet; views of v_.tokens
};

Result<Tokenizer> Tokenizer::make(Vocabulary vocabulary) { return TokenizerBuilder(std::move(vocabulary)).build(); }

}  // namespace terrace::text
