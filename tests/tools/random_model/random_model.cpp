#include "tests/tools/random_model/random_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "common/gguf/writer.h"
#include "tests/tools/random_model/layout.h"
#include "tests/tools/random_model/random_blocks.h"
#include "tests/tools/random_model/vocabulary.h"

namespace terrace::tools {
namespace {

constexpr std::uint64_t kChunkValues = 1 << 20;  // written at once; a multiple of every block
constexpr std::uint32_t kMaxVocab = 1 << 22;
constexpr std::uint64_t kMaxWidth = 1 << 24;  // of all experts that a token uses, side by side
constexpr std::uint32_t kQuantizationVersion = 2;
constexpr float kMostScale = 1000;  // half floats hold it in every type

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct MixName {
  const char* name;
  Mix mix;
};
constexpr MixName kMixes[] = {{"f32", Mix::kF32},   {"f16", Mix::kF16},   {"bf16", Mix::kBF16},
                              {"q8_0", Mix::kQ8_0}, {"q4_0", Mix::kQ4_0}, {"q4_k_m", Mix::kQ4_K_M}};

Error invalid(std::string text) { return Error(ErrorCode::kInvalidArgument, std::move(text)); }

Status check(const RandomModel& m) {
  if (m.architecture != "qwen3moe")
    return invalid(fmt::format("--arch {}: only qwen3moe can be written", m.architecture));
  struct Flag {
    const char* name;
    std::uint32_t value, least, most;
  };
  const Flag flags[] = {
      {"layers", m.layers, 1, 1024},
      {"d-model", m.d_model, 1, 1 << 20},
      {"heads", m.heads, 1, 4096},
      {"kv-heads", m.kv_heads, 1, 4096},
      {"head-dim", m.head_dim, 2, 4096},
      {"experts", m.experts, 1, 65536},
      {"top-k", m.top_k, 1, m.experts},
      {"ff", m.ff, 1, 1 << 20},
      {"vocab", m.vocab, kByteTokens, kMaxVocab},
      {"context", m.context, 1, 1 << 30},
  };
  for (const Flag& flag : flags) {
    if (flag.value < flag.least || flag.value > flag.most)
      return invalid(fmt::format("--{} {}: {} to {} can be written", flag.name, flag.value, flag.least, flag.most));
  }
  if (m.heads % m.kv_heads != 0)
    return invalid(fmt::format("--heads {} is no multiple of --kv-heads {}", m.heads, m.kv_heads));
  if (std::uint64_t{m.ff} * m.top_k > kMaxWidth)
    return invalid(fmt::format("--ff {} times --top-k {}: at most {} can be written", m.ff, m.top_k, kMaxWidth));
  if (!(m.embedding_scale >= 1 && m.embedding_scale <= kMostScale))
    return invalid(fmt::format("--embedding-scale {}: 1 to {} can be written", m.embedding_scale, kMostScale));
  if (m.head_dim % 2 != 0) return invalid(fmt::format("--head-dim {}: it must be even to be rotated", m.head_dim));
  return {};
}

void add_model_keys(gguf::Writer& writer, const RandomModel& m) {
  writer.add_string("general.architecture", m.architecture);
  writer.add_string("general.type", "model");
  writer.add_string("general.name", fmt::format("random {} (seed {})", m.architecture, m.seed));
  writer.add_u32("general.file_type", file_type(m.mix));
  writer.add_u32("general.quantization_version", kQuantizationVersion);
  const auto key = [&](const char* name) { return fmt::format("{}.{}", m.architecture, name); };
  writer.add_u32(key("block_count"), m.layers);
  writer.add_u32(key("context_length"), m.context);
  writer.add_u32(key("embedding_length"), m.d_model);
  writer.add_u32(key("feed_forward_length"), m.ff * m.top_k);
  writer.add_u32(key("expert_feed_forward_length"), m.ff);
  writer.add_u32(key("expert_count"), m.experts);
  writer.add_u32(key("expert_used_count"), m.top_k);
  writer.add_u32(key("attention.head_count"), m.heads);
  writer.add_u32(key("attention.head_count_kv"), m.kv_heads);
  writer.add_u32(key("attention.key_length"), m.head_dim);
  writer.add_u32(key("attention.value_length"), m.head_dim);
  writer.add_f32(key("attention.layer_norm_rms_epsilon"), 1e-6F);
  writer.add_f32(key("rope.freq_base"), 1e6F);
  writer.add_u32(key("vocab_size"), m.vocab);
}

// No end-of-text id of any kind: generation ends at its limit only, which is what a benchmark wants.
void add_tokenizer_keys(gguf::Writer& writer, const RandomModel& m) {
  const Vocabulary vocabulary = make_vocabulary(m.vocab);
  const std::vector<std::int32_t> types(m.vocab, 1);  // 1: an ordinary token
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "qwen2");
  writer.add_strings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.add_i32s("tokenizer.ggml.token_type", types);
  writer.add_strings("tokenizer.ggml.merges", vocabulary.merges);
  writer.add_bool("tokenizer.ggml.add_bos_token", false);
  writer.add_string("tokenizer.chat_template", kChatTemplate);
}

std::uint64_t n_values(const TensorPlan& tensor) {
  std::uint64_t n = 1;
  for (const std::uint64_t dimension : tensor.shape) n *= dimension;
  return n;
}

// Row length K and weights of deviation 1/sqrt(K), if not scaled: a product with a normed row stays near 1.
Status write_tensor(gguf::Writer& writer, const TensorPlan& tensor, std::uint64_t seed, std::uint64_t number,
                    std::vector<std::byte>& buffer) {
  const float deviation = tensor.scale / std::sqrt(static_cast<float>(tensor.shape[0]));
  std::uint64_t left = n_values(tensor);
  for (std::uint64_t chunk = 0; left != 0; ++chunk) {
    const std::uint64_t values = std::min(left, kChunkValues);
    buffer.resize(row_bytes(tensor.type, values));
    const Random random(seed, number, chunk);
    if (tensor.fill == Fill::kNorm) {
      fill_norm(random, buffer);
    } else {
      fill_weights(tensor.type, deviation, random, buffer);
    }
    TERRACE_RETURN_IF_ERROR(writer.write(buffer));
    left -= values;
  }
  return {};
}

}  // namespace

Result<Mix> mix_from_name(const std::string& name) {
  std::string known;
  for (const MixName& mix : kMixes) {
    if (name == mix.name) return mix.mix;
    known += (known.empty() ? "" : ", ") + std::string(mix.name);
  }
  return invalid(fmt::format("--type {}: there are {}", name, known));
}

Result<Written> write_random_model(const RandomModel& model, const std::filesystem::path& path) {
  TERRACE_RETURN_IF_ERROR(check(model));
  const std::vector<TensorPlan> tensors = plan_tensors(model);
  TERRACE_ASSIGN_OR_RETURN(auto writer, gguf::Writer::create(path));
  add_model_keys(writer, model);
  add_tokenizer_keys(writer, model);
  for (const TensorPlan& tensor : tensors) writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    TERRACE_RETURN_IF_ERROR(write_tensor(writer, tensors[i], model.seed, i, buffer));
  TERRACE_RETURN_IF_ERROR(writer.finish());
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return Error(ErrorCode::kIo, fmt::format("{}: cannot look at it: {}", path.string(), error.message()));
  return Written{tensors.size(), bytes};
}

}  // namespace terrace::tools
