#include <fmt/format.h>

#include <string_view>

#include "common/gguf/file.h"
#include "coordinator/text/vocabulary.h"

namespace terrace::text {
namespace {

using gguf::File;

// A key that may be missing: `value` stays empty then.
template <class T>
Status read_optional(const File& file, std::string_view key, Result<T> (File::*get)(std::string_view) const,
                     std::optional<T>& value) {
  if (file.find(key) == nullptr) return {};
  TERRACE_ASSIGN_OR_RETURN(value, (file.*get)(key));
  return {};
}

Status read_ids(const File& file, Vocabulary& vocabulary) {
  const std::pair<const char*, std::optional<std::uint32_t>*> ids[] = {
      {"bos", &vocabulary.bos},         {"eos", &vocabulary.eos},         {"eot", &vocabulary.eot},
      {"eom", &vocabulary.eom},         {"unknown", &vocabulary.unk},     {"padding", &vocabulary.pad},
      {"fim_pad", &vocabulary.fim_pad}, {"fim_rep", &vocabulary.fim_rep}, {"fim_sep", &vocabulary.fim_sep}};
  for (const auto& [name, id] : ids)
    TERRACE_RETURN_IF_ERROR(read_optional(file, fmt::format("tokenizer.ggml.{}_token_id", name), &File::get_u32, *id));
  return {};
}

Status read_lists(const File& file, Vocabulary& vocabulary) {
  TERRACE_ASSIGN_OR_RETURN(const auto tokens, file.get_strings("tokenizer.ggml.tokens"));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (file.find("tokenizer.ggml.token_type") != nullptr) {
    TERRACE_ASSIGN_OR_RETURN(vocabulary.types, file.get_i32s("tokenizer.ggml.token_type"));
  }
  if (vocabulary.model != "gpt2" && file.find("tokenizer.ggml.merges") == nullptr) return {};
  TERRACE_ASSIGN_OR_RETURN(const auto merges, file.get_strings("tokenizer.ggml.merges"));
  vocabulary.merges.assign(merges.begin(), merges.end());
  return {};
}

// The model's embedding and its vocab_size key against the token list.
Status compare_sizes(const File& file, Vocabulary& vocabulary) {
  const std::size_t n_tokens = vocabulary.tokens.size();
  const gguf::TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding != nullptr && embedding->n_dims >= 2 && embedding->shape[1] != n_tokens)
    return Error(ErrorCode::kCorrupt,
                 fmt::format("{} holds {} tokens, token_embd.weight has {} rows; they must be equal",
                             file.key_place("tokenizer.ggml.tokens"), n_tokens, embedding->shape[1]));
  const auto architecture = file.architecture();
  if (!architecture.ok()) return {};  // a vocabulary alone has no use for it
  const std::string key = fmt::format("{}.vocab_size", *architecture);
  const gguf::Value* size = file.find(key);
  if (size != nullptr && size->integer<std::uint64_t>() != n_tokens)
    vocabulary.notes.push_back(
        fmt::format("{} is {}, but tokenizer.ggml.tokens holds {} tokens, which is used", key, size->text(), n_tokens));
  return {};
}

}  // namespace

Result<Vocabulary> vocabulary_from_gguf(const File& file) {
  Vocabulary vocabulary;
  for (const gguf::KeyValue& entry : file.metadata().entries())
    if (entry.key.starts_with("tokenizer.")) vocabulary.offsets.emplace(entry.key, entry.value.offset);
  TERRACE_ASSIGN_OR_RETURN(vocabulary.model, file.get_string("tokenizer.ggml.model"));
  std::optional<std::string_view> pre, chat_template;
  TERRACE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.pre", &File::get_string, pre));
  TERRACE_RETURN_IF_ERROR(read_optional(file, "tokenizer.chat_template", &File::get_string, chat_template));
  if (pre) vocabulary.pre = *pre;
  vocabulary.chat_template = chat_template.value_or("");
  TERRACE_RETURN_IF_ERROR(read_lists(file, vocabulary));
  TERRACE_RETURN_IF_ERROR(read_ids(file, vocabulary));
  TERRACE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.add_bos_token", &File::get_bool, vocabulary.add_bos));
  TERRACE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.add_eos_token", &File::get_bool, vocabulary.add_eos));
  TERRACE_RETURN_IF_ERROR(compare_sizes(file, vocabulary));
  return vocabulary;
}

}  // namespace terrace::text
