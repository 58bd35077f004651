// Bug classes of keys and tensors that do not fit each other, and of the vocabulary.
#include <fmt/format.h>

#include "coordinator/app/generation.h"
#include "tests/hostile/support/bug_class.h"

namespace terrace::test {
namespace model_test {

using raw::number;

constexpr std::uint32_t kWidth = 32, kExperts = 4;  // of base.gguf
const char* const kStacks[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"};

using GgufBugClass = BugClassFiles;

// `n` times the bytes of a payload, as a list's elements.
std::vector<std::string> repeated(const std::string& payload, std::size_t n) {
  return std::vector<std::string>(n, payload);
}

TEST_F(GgufBugClass, C02_CompleteFileWithoutDenseTensorNames_RunsAndAMissingOneIsNoDamage) {
  const RawGguf raw = RawGguf::base();
  for (const RawTensor& tensor : raw.tensors)
    for (const char* dense : {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"})
      ASSERT_FALSE(tensor.name.ends_with(dense)) << tensor.name;
  expect_as_base(write(raw));
  // What is missing is called missing: nobody should load the file down again for it.
  RawGguf without = raw;
  without.take_tensor(kStacks[2]);
  const Error error = model_error(without);
  expect_says(error, ErrorCode::kNotFound, {std::string("tensor ") + kStacks[2] + " is missing"});
  for (const char* word : {"truncated", "damaged", "corrupt"}) EXPECT_EQ(error.text().find(word), std::string::npos);
}

TEST_F(GgufBugClass, C03_TensorCountMismatch_IsToldByNameNotOnlyByNumber) {
  RawGguf fewer = RawGguf::base();
  fewer.take_tensor("blk.0.attn_k_norm.weight");
  expect_says(model_error(fewer), ErrorCode::kNotFound, {"tensor blk.0.attn_k_norm.weight is missing"});
  RawGguf more = RawGguf::base();  // it would change every product
  more.tensors.push_back({"rope_freqs.weight", {4}, raw::kTypeF32, std::string(16, '\0')});
  expect_says(model_error(more), ErrorCode::kUnsupported, {"tensor rope_freqs.weight (offset"});
  RawGguf header = RawGguf::base();
  header.n_tensors = header.tensors.size() + 1;
  expect_says(open_error(header), ErrorCode::kCorrupt, {"tensor 15 of 15 (offset"});
  RawGguf parts = RawGguf::base();
  parts.set("split.no", raw::kU16, number(std::uint16_t{0}));
  parts.set("split.count", raw::kU16, number(std::uint16_t{1}));
  parts.set("split.tensors.count", raw::kI32, number(20));
  expect_says(open_error(parts), ErrorCode::kCorrupt, {"split.tensors.count (offset", "is 20", "hold 14 tensors"});
}

TEST_F(GgufBugClass, C15_ExpertWidth_IsReadFromItsKeyNotAssumed) {
  // The dense width (64) is not that of an expert, nor what it is divided by: only the key's number fits.
  RawGguf raw = RawGguf::base();
  raw.set("qwen3moe.feed_forward_length", raw::kU32, number(std::uint32_t{9999}));
  expect_as_base(write(raw));
  // Old files have no such key: the dense width is that of the experts used together.
  raw.set("qwen3moe.feed_forward_length", raw::kU32, number(std::uint32_t{64}));
  raw.drop_key("qwen3moe.expert_feed_forward_length");
  expect_as_base(write(raw));
  raw.set("qwen3moe.feed_forward_length", raw::kU32, number(std::uint32_t{128}));
  expect_says(model_error(raw), ErrorCode::kCorrupt, {kStacks[0], "(offset", "[32, 32, 4]", "[32, 64, 4]"});
}

TEST_F(GgufBugClass, C16_ExpertStacksOfAnotherShape_AreRefusedInEachDimension) {
  for (const char* const name : kStacks)
    for (std::size_t dimension = 0; dimension < 3; ++dimension)
      for (const bool larger : {false, true}) {
        RawGguf raw = RawGguf::base();
        RawTensor& stack = raw.tensor(name);
        const std::uint64_t before = stack.dims[dimension];
        stack.dims[dimension] = larger ? before * 2 : dimension == 0 ? before : before / 2;
        if (stack.dims[dimension] == before) continue;  // half a row is no whole block: another class
        stack.data.assign(stack.data.size() * stack.dims[dimension] / before, '\0');
        SCOPED_TRACE(fmt::format("{}, dimension {}, {}", name, dimension, stack.dims[dimension]));
        expect_says(model_error(raw), ErrorCode::kCorrupt, {name, "(offset", "has the shape"});
        expect_says(experts_error(raw), ErrorCode::kCorrupt, {name, "(offset", "has the shape"});
      }
}

// Gate and up of all experts in one stack, an expert's gate rows first.
RawGguf fused() {
  RawGguf raw = RawGguf::base();
  const RawTensor gate = raw.take_tensor(kStacks[0]), up = raw.take_tensor(kStacks[1]);
  RawTensor both{"blk.0.ffn_gate_up_exps.weight", {kWidth, 2 * kWidth, kExperts}, gate.type, ""};
  const std::size_t one = gate.data.size() / kExperts;
  for (std::size_t e = 0; e < kExperts; ++e) both.data += gate.data.substr(e * one, one) + up.data.substr(e * one, one);
  raw.tensors.push_back(both);
  return raw;
}

TEST_F(GgufBugClass, C17_ExpertsFused_GiveTheSameBitsAndOtherCutsAreNamed) {
  expect_as_base(write(fused()));

  RawGguf wrong = fused();
  wrong.tensor("blk.0.ffn_gate_up_exps.weight").dims = {kWidth, kWidth, 2 * kExperts};
  expect_says(model_error(wrong), ErrorCode::kCorrupt, {"blk.0.ffn_gate_up_exps.weight (offset", "[32, 64, 4]"});
  expect_says(experts_error(wrong), ErrorCode::kCorrupt, {"blk.0.ffn_gate_up_exps.weight (offset", "[32, 64, 4]"});

  // Both forms at once: which of them is meant cannot be known.
  for (const char* const part : {kStacks[0], kStacks[1]}) {
    RawGguf twice = fused();
    twice.tensors.push_back(RawGguf::base().tensor(part));
    expect_says(experts_error(twice), ErrorCode::kCorrupt, {"blk.0.ffn_gate_up_exps.weight (offset", "twice"});
    expect_says(model_error(twice), ErrorCode::kUnsupported, {std::string(part) + " (offset"});
  }

  // A tensor for each expert, as files of before the stacks have them.
  RawGguf old = RawGguf::base();
  for (const char* part : {"gate", "up", "down"}) {
    const RawTensor stack = old.take_tensor(fmt::format("blk.0.ffn_{}_exps.weight", part));
    const std::size_t one = stack.data.size() / kExperts;
    for (std::size_t e = 0; e < kExperts; ++e)
      old.tensors.push_back({fmt::format("blk.0.ffn_{}.{}.weight", part, e),
                             {kWidth, kWidth},
                             stack.type,
                             stack.data.substr(e * one, one)});
  }
  expect_says(experts_error(old), ErrorCode::kUnsupported,
              {"blk.0.ffn_gate.0.weight (offset", "one expert alone", "convert the model again"});
}

TEST_F(GgufBugClass, C18_MlaKeyValueTensors_TheArchitectureIsRefusedByName) {
  // Architectures with MLA are not built: neither form of kv_b is read as something else.
  for (const char* const architecture : {"deepseek2", "glm4moe"}) {
    RawGguf raw = RawGguf::base();
    raw.set("general.architecture", raw::kString, raw::text(architecture));
    raw.tensors.push_back({"blk.0.attn_kv_b.weight", {kWidth, 64}, raw::kTypeF32, std::string(kWidth * 64 * 4, '\0')});
    const std::vector<std::string> says = {"key general.architecture (offset", architecture, "qwen3moe"};
    expect_says(model_error(raw), ErrorCode::kUnsupported, says);
    expect_says(experts_error(raw), ErrorCode::kUnsupported, says);
  }
}

TEST_F(GgufBugClass, C19_ArraysAndNumbersOfOtherIntegerTypes_AreReadByValue) {
  RawGguf raw = RawGguf::base();
  const auto file = gguf::File::open(data_dir() / "gguf" / "base.gguf");
  std::vector<std::string> types;
  for (const std::int32_t type : must(file->get_i32s("tokenizer.ggml.token_type")))
    types.push_back(number(static_cast<std::uint32_t>(type)));
  raw.set("tokenizer.ggml.token_type", raw::kArray, raw::array(raw::kU32, types));
  raw.set("tokenizer.ggml.bos_token_id", raw::kI32, number(std::int32_t{265}));
  raw.set("qwen3moe.block_count", raw::kI32, number(std::int32_t{1}));
  raw.set("qwen3moe.expert_count", raw::kU64, number(std::uint64_t{kExperts}));
  raw.set("qwen3moe.attention.head_count_kv", raw::kArray, raw::array(raw::kI32, {number(std::int32_t{2})}));
  expect_as_base(write(raw));
  // By value: what does not fit is no other number.
  raw.set("qwen3moe.expert_count", raw::kI32, number(std::int32_t{-4}));
  expect_says(model_error(raw), ErrorCode::kCorrupt, {"qwen3moe.expert_count (offset", "is -4"});
}

TEST_F(GgufBugClass, C20_TokenIdsOutOfRangeAndShortLists_AreRefusedByTheirKey) {
  for (const char* const name : {"bos", "eos", "eot", "eom", "unknown", "padding", "fim_pad", "fim_rep", "fim_sep"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    for (const std::uint32_t id : {268u, 0xffffffffu}) {
      RawGguf raw = RawGguf::base();
      raw.set(key, raw::kU32, number(id));
      expect_says(tokenizer_error(raw), ErrorCode::kCorrupt, {key + " (offset", std::to_string(id), "268 tokens"});
    }
    RawGguf raw = RawGguf::base();
    raw.set(key, raw::kString, raw::text("<|im_end|>"));
    expect_says(tokenizer_error(raw), ErrorCode::kCorrupt, {key + " (offset", "type string"});
  }
  RawGguf types = RawGguf::base();
  types.set("tokenizer.ggml.token_type", raw::kArray, raw::array(raw::kI32, repeated(number(1), 10)));
  expect_says(tokenizer_error(types), ErrorCode::kCorrupt, {"token_type (offset", "10 entries for 268 tokens"});
  // Byte-level BPE has no use for scores: they are not read, however many there are.
  RawGguf scores = RawGguf::base();
  scores.set("tokenizer.ggml.scores", raw::kArray, raw::array(raw::kF32, repeated(number(0.0F), 3)));
  expect_as_base(write(scores));
}

TEST_F(GgufBugClass, C21_ByteTokenWithASign_IsPlainTextAndIndexesNothing) {
  RawGguf raw = RawGguf::base();
  const auto file = gguf::File::open(data_dir() / "gguf" / "base.gguf");
  std::vector<std::string> tokens, types;
  for (const std::string_view token : must(file->get_strings("tokenizer.ggml.tokens")))
    tokens.push_back(raw::text(std::string(token)));
  for (const std::int32_t type : must(file->get_i32s("tokenizer.ggml.token_type"))) types.push_back(number(type));
  const std::vector<std::string> odd = {"<0x-1>", "<0x100>", "<0x>", "<0xZZ>", "<0x4"};
  for (std::size_t i = 0; i < odd.size(); ++i) {
    tokens[256 + i] = raw::text(odd[i]);
    types[256 + i] = number(std::int32_t{6});  // "byte"
  }
  raw.set("tokenizer.ggml.tokens", raw::kArray, raw::array(raw::kString, tokens));
  raw.set("tokenizer.ggml.token_type", raw::kArray, raw::array(raw::kI32, types));
  const gguf::File written = must(gguf::File::open(write(raw)));
  const text::Tokenizer tokenizer = must(app::open_tokenizer(written, true));
  for (std::size_t i = 0; i < odd.size(); ++i)
    EXPECT_EQ(must(tokenizer.decode(std::vector<std::int32_t>{static_cast<std::int32_t>(256 + i)}, {.special = true})),
              odd[i]);
  EXPECT_EQ(must(tokenizer.decode(must(tokenizer.encode("a<0x-1>b", {})), {})), "a<0x-1>b");
}

TEST_F(GgufBugClass, C23_BlockCountWithoutEnd_IsRefusedByItsKey) {
  for (const std::uint32_t count : {0xffffffffu, 1u << 20, 4097u, 4096u, 2u, 0u}) {
    RawGguf raw = RawGguf::base();
    raw.set("qwen3moe.block_count", raw::kU32, number(count));
    const Error trunk = model_error(raw);
    if (count > 4096 || count == 0)
      expect_says(trunk, ErrorCode::kCorrupt, {"qwen3moe.block_count (offset", std::to_string(count)});
    else
      expect_says(trunk, ErrorCode::kNotFound, {"tensor blk.1."});
    expect_says(experts_error(raw), count == 2 ? ErrorCode::kNotFound : ErrorCode::kCorrupt, {});
  }
}

TEST_F(GgufBugClass, C27_ExpertInF16ThatOverflows_IsNamedWhenItDoes) {
  // Each value is finite in f16; the product of the last step is not in the range of the sum.
  RawGguf raw = RawGguf::base();
  for (const char* const name : kStacks) {
    RawTensor& stack = raw.tensor(name);
    stack.type = raw::kTypeF16;
    stack.data.clear();
    for (std::uint64_t i = 0; i < kWidth * kWidth * kExperts; ++i)
      stack.data += number(static_cast<std::uint16_t>(i % 3 == 0 ? 0x7bff : 0x7800));  // 65504, 32768
  }
  const auto engine =
      must(app::Engine::open(gate_options(write(raw)), Environment(std::map<std::string, std::string>())));
  app::GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 2;
  request.batch = 16;
  const auto made = app::generate(*engine, request, [](std::string_view) { return Status(); });
  ASSERT_FALSE(made.ok()) << "tokens from values that are none";
  expect_says(made.error(), ErrorCode::kNotFinite, {"expert outputs of layer 0", "experts "});
}

TEST_F(GgufBugClass, C28_SharedExpertsAndManyExpertsUsed_AreRefusedOrComputedNeverHalf) {
  // Said to have a shared expert: without its tensors, and with them, it is no qwen3moe.
  RawGguf shared = RawGguf::base();
  shared.set("qwen3moe.expert_shared_count", raw::kU32, number(1u));
  expect_says(model_error(shared), ErrorCode::kUnsupported, {"qwen3moe.expert_shared_count (offset", "is 1"});

  // More experts used than any fixed array of 16 holds: all of 64.
  constexpr std::uint32_t kMany = 64;
  RawGguf many = RawGguf::base();
  for (const char* const name : kStacks) {
    RawTensor& stack = many.tensor(name);
    const std::string four = stack.data;
    for (std::uint32_t i = kExperts; i < kMany; i += kExperts) stack.data += four;
    stack.dims[2] = kMany;
  }
  RawTensor& router = many.tensor("blk.0.ffn_gate_inp.weight");
  const std::string four = router.data;
  for (std::uint32_t i = kExperts; i < kMany; i += kExperts) router.data += four;
  router.dims[1] = kMany;
  many.set("qwen3moe.expert_count", raw::kU32, number(kMany));
  many.set("qwen3moe.expert_used_count", raw::kU32, number(kMany));
  const GateRun all = run(write(many));
  EXPECT_EQ(all.pairs(), all.expected_pairs);
  EXPECT_EQ(all.expected_pairs, (4 + all.tokens.size() - 1) * kMany);

  many.set("qwen3moe.expert_used_count", raw::kU32, number(kMany + 1));
  expect_says(model_error(many), ErrorCode::kCorrupt, {"qwen3moe.expert_used_count (offset", "is 65", "64"});
}

TEST_F(GgufBugClass, C29_KeysOfAnotherArchitecture_AreNotReadByThisOnesReader) {
  RawGguf raw = RawGguf::base();
  for (RawKey& key : raw.keys)
    if (key.name.starts_with("qwen3moe.")) key.name = "qwen2moe." + key.name.substr(9);
  expect_says(model_error(raw), ErrorCode::kNotFound, {"key qwen3moe."});
  raw.set("general.architecture", raw::kString, raw::text("qwen2moe"));
  expect_says(model_error(raw), ErrorCode::kUnsupported, {"general.architecture (offset", "qwen2moe"});
}

}  // namespace model_test
}  // namespace terrace::test
