#include <algorithm>
#include <array>

#include "coordinator/text/pre_tokenizer.h"

namespace terrace::text {
namespace {

// Sources: tiktoken, tiktoken_ext/openai_public.py (gpt-2, gpt-4o); the pre_tokenizer in tokenizer.json of Qwen2
// (qwen2), Llama 3 (llama-bpe), GLM-4 (glm4), deepseek-llm and DeepSeek-V2 (deepseek-llm), DeepSeek-V3 (deepseek-v3);
// the patterns that llama.cpp applies to files without the key (default).
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r"
    "\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|"
    "'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm"
    "}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*["
    "\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kLineBreak = "[\r\n]";
// The formatter counts these characters differently in each run.
// clang-format off
// Letters of the alphabets with case, as the model's tokenizer lists them.
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-"
    "ἕἘ-"
    "Ἕἠ-"
    "ὅὈ-"
    "Ὅὐ"
    "-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-"
    "ꞇꞋ-"
    "ꞎꭰ-"
    "ꮿﬀ-"
    "ﬆ"
    "ﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
// clang-format on
// U+3000 stands as an escape, since editors lose it; so does U+D7FF below, which is unassigned.
constexpr std::string_view kDeepseekPunctuation = "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+";
constexpr std::string_view kTrailingSpace = "\\s+$";
constexpr std::string_view kCjk = "[一-龥ࠀ-一가-\uD7FF]+";
constexpr std::string_view kDigit = "\\p{N}";
constexpr std::string_view kThreeDigits = "\\p{N}{1,3}";
constexpr std::string_view kHanAndKana = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr std::string_view kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

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
      PreTokenizerInfo{.name = "llama-bpe",
                       .aliases = {"llama3", "llama-v3", "pixtral", "falcon3", "lfm2"},
                       .patterns = {kLlama3},
                       .ignore_merges = true,
                       .add_bos = true},
      PreTokenizerInfo{.name = "glm4", .aliases = {}, .patterns = {kLlama3}, .ignore_merges = true},
      PreTokenizerInfo{.name = "chatglm-bpe", .aliases = {}, .patterns = {kLlama3}},
      PreTokenizerInfo{.name = "deepseek-llm",
                       .aliases = {},
                       .patterns = {kLineBreak, kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kCjk, kDigit}},
      PreTokenizerInfo{.name = "deepseek-v3",
                       .aliases = {"hunyuan-dense", "joyai-llm"},
                       .patterns = {kThreeDigits, kHanAndKana, kDeepseekV3}},
      PreTokenizerInfo{.name = "gpt-4o", .aliases = {"llama4", "minimax-m2", "kanana2"}, .patterns = {kGpt4o}},
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
