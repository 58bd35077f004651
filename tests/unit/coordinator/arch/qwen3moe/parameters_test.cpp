#include "coordinator/arch/qwen3moe/parameters.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "common/gguf/writer.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/coordinator/arch/model_under_test.h"

namespace terrace::arch::qwen3moe {
namespace parameters_test {

using test::value_of;

using Edit = std::function<void(gguf::Writer&)>;

// The keys of a published model of the family, and what `edit` adds; no tensors.
gguf::File file_with(const test::TempDir& dir, const Edit& edit, bool expert_ff = true) {
  auto writer = value_of(gguf::Writer::create(dir / "keys.gguf"));
  writer.add_string("general.architecture", "qwen3moe");
  writer.add_u32("qwen3moe.block_count", 48);
  writer.add_u32("qwen3moe.context_length", 40960);
  writer.add_u32("qwen3moe.embedding_length", 2048);
  writer.add_u32("qwen3moe.feed_forward_length", 6144);
  writer.add_u32("qwen3moe.attention.head_count", 32);
  writer.add_u32("qwen3moe.attention.head_count_kv", 4);
  writer.add_u32("qwen3moe.attention.key_length", 128);
  writer.add_u32("qwen3moe.attention.value_length", 128);
  writer.add_f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
  writer.add_f32("qwen3moe.rope.freq_base", 1e6f);
  writer.add_u32("qwen3moe.expert_count", 128);
  writer.add_u32("qwen3moe.expert_used_count", 8);
  if (expert_ff) writer.add_u32("qwen3moe.expert_feed_forward_length", 768);
  edit(writer);
  if (const Status status = writer.finish(); !status.ok()) throw std::runtime_error(status.error().text());
  return value_of(gguf::File::open(dir / "keys.gguf"));
}

TEST(Qwen3MoeParameters, PublishedModel) {
  const test::TempDir dir;
  const Parameters p = value_of(read_parameters(file_with(dir, [](gguf::Writer&) {})));
  EXPECT_EQ(p.n_layers, 48u);
  EXPECT_EQ(p.attention.n_heads, 32u);
  EXPECT_EQ(p.attention.n_kv_heads, 4u);
  EXPECT_EQ(p.attention.n_rot, 128u);
  EXPECT_EQ(p.attention.rope_base, 1e6);
  EXPECT_EQ(p.attention.rope_scaling.factor, 1.0);
  EXPECT_EQ(p.attention.score_scale, static_cast<float>(1.0 / std::sqrt(128.0)));
  EXPECT_EQ(p.expert_ff, 768u);
  EXPECT_FALSE(p.expert_scale.has_value());
}

TEST(Qwen3MoeParameters, MissingExpertWidth_IsThatOfTheExpertsUsedTogether) {
  const test::TempDir dir;
  EXPECT_EQ(value_of(read_parameters(file_with(
                         dir, [](gguf::Writer&) {}, false)))
                .expert_ff,
            6144u / 8);
}

TEST(Qwen3MoeParameters, NeutralKeys_AreAccepted) {
  const test::TempDir dir;
  const auto p = read_parameters(file_with(dir, [](gguf::Writer& w) {
    w.add_u32("qwen3moe.expert_gating_func", 1);
    w.add_bool("qwen3moe.expert_weights_norm", true);
    w.add_u32("qwen3moe.expert_shared_count", 0);
    w.add_string("qwen3moe.rope.scaling.type", "none");
    w.add_f32("qwen3moe.expert_weights_scale", 1.0f);
  }));
  ASSERT_TRUE(p.ok()) << p.error().text();
  EXPECT_FALSE(p->expert_scale.has_value());
}

TEST(Qwen3MoeParameters, ScaleAndLinearScaling_AreApplied) {
  const test::TempDir dir;
  const Parameters p = value_of(read_parameters(file_with(dir, [](gguf::Writer& w) {
    w.add_f32("qwen3moe.expert_weights_scale", 2.5f);
    w.add_f32("qwen3moe.rope.scaling.factor", 4.0f);
    w.add_u32("qwen3moe.rope.dimension_count", 64);
    w.add_f32("qwen3moe.attention.scale", 0.25f);
  })));
  EXPECT_EQ(p.expert_scale, 2.5f);
  EXPECT_EQ(p.attention.rope_scaling.factor, 0.25);
  EXPECT_EQ(p.attention.n_rot, 64u);
  EXPECT_EQ(p.attention.score_scale, 0.25f);
}

struct Refused {
  const char* key;  // below "qwen3moe."
  std::function<void(gguf::Writer&, std::string key)> add;
};

TEST(Qwen3MoeParameters, WhatTheArchitectureDoesNotDo_IsRefusedByName) {
  const auto u32 = [](std::uint32_t v) { return [v](gguf::Writer& w, const std::string& k) { w.add_u32(k, v); }; };
  const auto f32 = [](float v) { return [v](gguf::Writer& w, const std::string& k) { w.add_f32(k, v); }; };
  const Refused table[] = {
      {"expert_gating_func", u32(2)},
      {"expert_weights_norm", [](gguf::Writer& w, const std::string& k) { w.add_bool(k, false); }},
      {"expert_shared_count", u32(1)},
      {"expert_group_count", u32(8)},
      {"leading_dense_block_count", u32(1)},
      {"nextn_predict_layers", u32(1)},
      {"attention.sliding_window", u32(4096)},
      {"final_logit_softcapping", f32(30.0f)},
      {"rope.scaling.type", [](gguf::Writer& w, const std::string& k) { w.add_string(k, "yarn"); }},
      {"expert_weights_scale", f32(std::numeric_limits<float>::quiet_NaN())},
      {"some.float", f32(std::numeric_limits<float>::infinity())},
      {"rope.scaling.factor", f32(0.0f)},
      {"rope.dimension_count", u32(7)},
      {"rope.dimension_count", u32(130)},
      {"vocab_size", u32(0)},
  };
  const test::TempDir dir;
  for (const Refused& refused : table) {
    const std::string key = std::string("qwen3moe.") + refused.key;
    const auto p = read_parameters(file_with(dir, [&](gguf::Writer& w) { refused.add(w, key); }));
    ASSERT_FALSE(p.ok()) << key;
    EXPECT_NE(p.error().text().find(key), std::string::npos) << p.error().text();
    EXPECT_NE(p.error().text().find("keys.gguf"), std::string::npos) << p.error().text();
  }
}

}  // namespace parameters_test
}  // namespace terrace::arch::qwen3moe
