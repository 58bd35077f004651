#include "tests/tools/random_model/random_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/gguf/bytes.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "tests/test_data.h"
#include "tests/tools/random_model/random_blocks.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::tools {
namespace {

RandomModel small(Mix mix) {
  return {.layers = 8,
          .d_model = 256,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .experts = 4,
          .top_k = 2,
          .ff = 256,
          .vocab = 1200,
          .context = 512,
          .mix = mix,
          .seed = 7};
}

gguf::File write_and_open(const RandomModel& model, const std::filesystem::path& path) {
  const auto written = write_random_model(model, path);
  EXPECT_TRUE(written.ok()) << written.error().text();
  auto file = gguf::File::open(path);
  EXPECT_TRUE(file.ok()) << file.error().text();
  return std::move(file).value();
}

TEST(RandomModel, EveryMix_OpensAndHasItsExperts) {
  const test::TempDir dir;
  for (const char* name : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m"}) {
    const auto file = write_and_open(small(mix_from_name(name).value()), dir / "x.gguf");
    const auto experts = manifest::find_experts(file);
    ASSERT_TRUE(experts.ok()) << name << ": " << experts.error().text();
    EXPECT_EQ(experts->layers.size(), 8u);
    EXPECT_EQ(experts->top_k, 2u);
    EXPECT_EQ(file.find_tensor("blk.0.ffn_gate_inp.weight")->type, TensorType::kF32);
  }
  EXPECT_NE(mix_from_name("q3_x").error().text().find("q4_k_m"), std::string::npos);
}

TEST(RandomModel, Q4KM_MixesTypesAsTheQuantiserDoes) {
  const test::TempDir dir;
  const auto type_of = [](const gguf::File& file, const char* name) { return file.get_tensor(name).value()->type; };
  auto model = small(Mix::kQ4_K_M);
  const auto file = write_and_open(model, dir / "x.gguf");
  // More bits of 8 layers: the first, every third from 3 on, the last.
  for (int layer = 0; layer < 8; ++layer) {
    const bool more = layer == 0 || layer == 3 || layer == 6 || layer == 7;
    const auto expected = more ? TensorType::kQ6_K : TensorType::kQ4_K;
    EXPECT_EQ(type_of(file, fmt::format("blk.{}.ffn_down_exps.weight", layer).c_str()), expected) << layer;
    EXPECT_EQ(type_of(file, fmt::format("blk.{}.attn_v.weight", layer).c_str()), expected) << layer;
    EXPECT_EQ(type_of(file, fmt::format("blk.{}.ffn_up_exps.weight", layer).c_str()), TensorType::kQ4_K) << layer;
  }
  EXPECT_EQ(type_of(file, "output.weight"), TensorType::kQ6_K);
  EXPECT_EQ(type_of(file, "token_embd.weight"), TensorType::kQ4_K);
  model.experts = 8;
  model.ff = 32;  // down rows are no whole blocks of 256
  const auto eight = write_and_open(model, dir / "y.gguf");
  EXPECT_EQ(type_of(eight, "blk.1.attn_k.weight"), TensorType::kQ8_0);
  EXPECT_EQ(type_of(eight, "blk.1.attn_output.weight"), TensorType::kQ5_K);
  EXPECT_EQ(type_of(eight, "blk.0.ffn_down_exps.weight"), TensorType::kQ8_0);
  EXPECT_EQ(type_of(eight, "blk.1.ffn_down_exps.weight"), TensorType::kQ5_0);
}

TEST(RandomModel, SameSeed_SameBytes) {
  const test::TempDir dir;
  auto model = small(Mix::kQ4_K_M);
  write_and_open(model, dir / "a.gguf");
  write_and_open(model, dir / "b.gguf");
  EXPECT_EQ(test::read_file(dir / "a.gguf"), test::read_file(dir / "b.gguf"));
  const auto a = gguf::File::open(dir / "a.gguf");
  model.seed = 8;
  const auto c = write_and_open(model, dir / "c.gguf");
  for (const gguf::TensorInfo& tensor : c.tensors())
    EXPECT_NE(gguf::as_text(c.data(tensor)), gguf::as_text(a->data(*a->find_tensor(tensor.name)))) << tensor.name;
}

TEST(RandomModel, EmbeddingScale_IsOfTheEmbeddingAlone) {
  const test::TempDir dir;
  auto model = small(Mix::kF32);
  const auto plain = write_and_open(model, dir / "a.gguf");
  model.embedding_scale = 64;
  const auto scaled = write_and_open(model, dir / "b.gguf");
  for (const gguf::TensorInfo& tensor : scaled.tensors()) {
    const auto now = scaled.data(tensor), before = plain.data(*plain.find_tensor(tensor.name));
    if (tensor.name != "token_embd.weight") {
      EXPECT_EQ(gguf::as_text(now), gguf::as_text(before)) << tensor.name;
      continue;
    }
    for (std::size_t at = 0; at < now.size(); at += sizeof(float))
      ASSERT_EQ(gguf::load<float>(now.data() + at), 64 * gguf::load<float>(before.data() + at)) << at;
  }
}

TEST(RandomModel, Vocabulary_IsBytesThenMergesOfEarlierTokens) {
  const test::TempDir dir;
  const auto file = write_and_open(small(Mix::kQ8_0), dir / "x.gguf");
  const auto tokens = file.get_strings("tokenizer.ggml.tokens").value();
  const auto merges = file.get_strings("tokenizer.ggml.merges").value();
  ASSERT_EQ(tokens.size(), 1200u);
  ASSERT_EQ(merges.size(), 1200u - 256);
  EXPECT_EQ(tokens['A'], "A");
  EXPECT_EQ(tokens[' '], "Ġ");
  EXPECT_EQ(tokens['\n'], "Ċ");
  std::set<std::string_view> known(tokens.begin(), tokens.begin() + 256);
  ASSERT_EQ(known.size(), 256u);
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::size_t space = merges[i].find(' ', 1);
    const auto left = merges[i].substr(0, space);
    const auto right = merges[i].substr(space + 1);
    EXPECT_TRUE(known.contains(left) && known.contains(right)) << merges[i];
    EXPECT_EQ(tokens[256 + i], std::string(left) + std::string(right));
    EXPECT_TRUE(known.insert(tokens[256 + i]).second) << "twice: " << tokens[256 + i];
  }
  for (const char* key : {"eos", "eot", "eom", "bos"})
    EXPECT_EQ(file.find(fmt::format("tokenizer.ggml.{}_token_id", key)), nullptr);
}

TEST(RandomModel, NumbersThatDoNotFit_AreRefusedByFlag) {
  const test::TempDir dir;
  const auto error_of = [&](auto change) {
    auto model = small(Mix::kQ8_0);
    change(model);
    const auto written = write_random_model(model, dir / "x.gguf");
    return written.ok() ? std::string("accepted") : written.error().text();
  };
  EXPECT_NE(error_of([](RandomModel& m) { m.kv_heads = 3; }).find("--kv-heads 3"), std::string::npos);
  EXPECT_NE(error_of([](RandomModel& m) { m.top_k = 5; }).find("--top-k 5"), std::string::npos);
  EXPECT_NE(error_of([](RandomModel& m) { m.vocab = 255; }).find("--vocab 255"), std::string::npos);
  EXPECT_NE(error_of([](RandomModel& m) { m.embedding_scale = 0.5F; }).find("--embedding-scale 0.5"),
            std::string::npos);
  EXPECT_NE(error_of([](RandomModel& m) { m.architecture = "wombat"; }).find("--arch wombat"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

float from_f16(const std::byte* at) {
  const auto h = gguf::load<std::uint16_t>(at);
  const float magnitude = (h & 0x7c00) == 0 ? std::ldexp(static_cast<float>(h & 0x3ff), -24)
                                            : std::ldexp(static_cast<float>((h & 0x3ff) | 0x400), (h >> 10 & 31) - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

int six_bit(const std::byte* b, int j, bool min) {  // docs/formats.md: k4
  const auto at = [&](int i) { return std::to_integer<int>(b[i]); };
  if (j < 4) return at(min ? j + 4 : j) & 63;
  return min ? (at(j + 4) >> 4) | (at(j) >> 6) << 4 : (at(j + 4) & 15) | (at(j - 4) >> 6) << 4;
}

// Value i of a block, written from the definition of its format.
float value(TensorType type, const std::byte* b, int i) {
  const auto at = [&](int k) { return std::to_integer<int>(b[k]); };
  const auto nibble = [&](int off) { return at(off + i % 16) >> 4 * (i / 16) & 15; };
  const auto fifth = [&](int off) { return (gguf::load<std::uint32_t>(b + off) >> i & 1) << 4; };
  const float d = from_f16(b);
  switch (type) {
    case TensorType::kF32:
      return gguf::load<float>(b);
    case TensorType::kF16:
      return d;
    case TensorType::kBF16: {
      const std::uint32_t bits = std::uint32_t{gguf::load<std::uint16_t>(b)} << 16;
      return gguf::load<float>(reinterpret_cast<const std::byte*>(&bits));
    }
    case TensorType::kQ8_0:
      return d * static_cast<float>(static_cast<std::int8_t>(at(2 + i)));
    case TensorType::kQ4_0:
      return d * static_cast<float>(nibble(2) - 8);
    case TensorType::kQ5_0:
      return d * static_cast<float>(static_cast<int>(nibble(6) | fifth(2)) - 16);
    case TensorType::kQ5_1:
      return d * static_cast<float>(nibble(8) | fifth(4)) + from_f16(b + 2);
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: {
      const int qs = type == TensorType::kQ4_K ? 16 : 48;
      int q = at(qs + 32 * (i / 64) + i % 32) >> 4 * (i % 64 / 32) & 15;
      if (type == TensorType::kQ5_K) q |= (at(16 + i % 32) >> (i / 32) & 1) << 4;
      return d * static_cast<float>(six_bit(b + 4, i / 32, false) * q) -
             from_f16(b + 2) * static_cast<float>(six_bit(b + 4, i / 32, true));
    }
    case TensorType::kQ6_K: {
      const int h = i / 128;
      const int r = i % 128;
      const int q = (at(64 * h + r % 64) >> 4 * (r / 64) & 15) | (at(128 + 32 * h + r % 32) >> 2 * (r / 32) & 3) << 4;
      return from_f16(b + 208) * static_cast<float>(static_cast<std::int8_t>(at(192 + i / 16)) * (q - 32));
    }
    default:
      return NAN;
  }
}

TEST(RandomBlocks, EveryType_HasMeanZeroAndTheDeviationAskedFor) {
  constexpr std::uint64_t kValues = 1 << 18;
  for (const TensorTypeInfo& type : all_tensor_types()) {
    if (!can_fill(type.type)) continue;
    for (const float deviation : {1.0F / 16, 1.0F / 128}) {
      std::vector<std::byte> bytes(row_bytes(type.type, kValues));
      fill_weights(type.type, deviation, Random(1, 2, 3), bytes);
      double sum = 0;
      double squares = 0;
      for (std::uint64_t i = 0; i < kValues; ++i) {
        const auto n = type.block_values;
        const double v = value(type.type, bytes.data() + i / n * type.block_bytes, static_cast<int>(i % n));
        sum += v;
        squares += v * v;
      }
      // The mean of 2^18 values strays by 1/512 of their deviation; blocks share signs and offsets, hence 1/50.
      EXPECT_NEAR(sum / kValues, 0, deviation / 50) << type.name;
      EXPECT_NEAR(std::sqrt(squares / kValues), deviation, deviation / 20) << type.name;
    }
  }
}

}  // namespace
}  // namespace terrace::tools
