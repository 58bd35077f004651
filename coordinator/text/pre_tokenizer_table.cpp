#include <algorithm>
#include <array>

#include "coordinator/text/pre_tokenizer.h"

namespace terrace::text {
namespace {

// Sources: tiktoken, tiktoken_ext/openai_public.py (gpt-2); tokenizer.json of Qwen2, pre_tokenizer (qwen2); the
// patterns that llama.cpp applies to files without the key (default).
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

std::span<const PreTokenizerInfo> all_pre_tokenizers() {
  static const std::array kTable = {
      PreTokenizerInfo{
          .name = "gpt-2", .aliases = {"mpt", "phi-2", "olmo", "gigachat", "modern-bert", "jais"}, .patterns = {kGpt2}},
      PreTokenizerInfo{.name = "default",
                       .aliases = {},
                       .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
      PreTokenizerInfo{.name = "qwen2",
                       .aliases = {"deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2"},
                       .patterns = {kQwen2}},
  };
  return kTable;
}

const PreTokenizerInfo* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizerInfo& info : all_pre_tokenizers()) {
    if (info.name == name || std::ranges::find(info.aliases, name) != info.aliases.end()) return &info;
  }
  return nullptr;
}

}  // namespace terrace::text
