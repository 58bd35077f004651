#include "common/manifest/manifest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/gguf/bytes.h"
#include "common/gguf/writer.h"
#include "common/manifest/cache.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::manifest {
namespace {

using Shape = std::vector<std::uint64_t>;

// Items in falling order on n threads: as far from Serial as a schedule gets.
class Threads final : public Parallel {
 public:
  explicit Threads(std::size_t n) : n_(n) {}
  std::size_t n_workers() const override { return n_; }
  void run(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    std::atomic<std::size_t> left = n_items;
    std::vector<std::thread> threads;
    for (std::size_t worker = 0; worker < n_; ++worker) {
      threads.emplace_back([&, worker] {
        for (;;) {
          std::size_t item = left.load();
          while (item != 0 && !left.compare_exchange_weak(item, item - 1)) continue;
          if (item == 0) return;
          fn(item - 1, worker);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void run_in_order(std::size_t n_items, FunctionRef<void(std::size_t, std::size_t)> fn) override {
    Serial().run(n_items, fn);
  }

 private:
  std::size_t n_;
};

constexpr auto no_progress = [](std::uint64_t, std::uint64_t) {};

std::filesystem::path tiny() { return test::data_dir() / "tiny" / "tiny-mix.gguf"; }

gguf::File open(const std::filesystem::path& path) {
  auto file = gguf::File::open(path);
  EXPECT_TRUE(file.ok()) << file.error().text();
  return std::move(file).value();
}

ModelExperts experts_of(const gguf::File& file) {
  auto experts = find_experts(file);
  EXPECT_TRUE(experts.ok()) << experts.error().text();
  return std::move(experts).value();
}

Manifest manifest_of(const std::filesystem::path& path) {
  Serial serial;
  const auto file = open(path);
  auto manifest = compute(file, experts_of(file), serial, no_progress);
  EXPECT_TRUE(manifest.ok()) << manifest.error().text();
  return std::move(manifest).value();
}

TEST(Experts, TinyMix_HasTypesShapesAndPlaces) {
  const auto file = open(tiny());
  const auto experts = experts_of(file);
  EXPECT_EQ(experts.architecture, "qwen3moe");
  EXPECT_EQ(experts.n_experts, 8u);
  EXPECT_EQ(experts.top_k, 2u);
  ASSERT_EQ(experts.layers.size(), 2u);
  const LayerExperts& layer = experts.layers[1];
  EXPECT_EQ(layer.shape.types, (ExpertTypes{TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0}));
  EXPECT_EQ(layer.shape.d_model, 256u);
  EXPECT_EQ(layer.shape.ff, 64u);
  EXPECT_EQ(layer.shape.slab_bytes(), 2u * 64 * 256 * 2 + 256 * 68);
  EXPECT_EQ(layer.down.tensor, "blk.1.ffn_down_exps.weight");
}

TEST(Experts, ReadSlab_IsGateUpDownOfTheMapping) {
  const auto file = open(tiny());
  const auto experts = experts_of(file);
  std::vector<std::byte> slab(experts.slab_bytes(1));
  ASSERT_TRUE(read_slab(file, experts, 1, 5, slab).ok());
  std::string expected;
  for (const char* part : {"gate", "up", "down"}) {
    const auto data = file.data(*file.find_tensor(fmt::format("blk.1.ffn_{}_exps.weight", part)));
    expected += gguf::as_text(data.subspan(data.size() / 8 * 5, data.size() / 8));
  }
  EXPECT_EQ(gguf::as_text(slab), expected);
  std::vector<std::byte> buffer(1000);
  EXPECT_EQ(slab_id_in(file, experts, 1, 5, buffer).value(), slab_id_of(experts.layers[1].shape, slab));
}

// A model of one layer with experts of 32 x 32 in F32; each argument changes one thing.
struct SmallModel {
  bool fused = false;
  std::uint64_t up_experts = 2;
  bool with_bias = false;
  std::string architecture = "qwen3moe";
};

void write_small(const std::filesystem::path& path, const SmallModel& model) {
  constexpr std::uint64_t kWidth = 32;
  constexpr std::uint64_t kPart = kWidth * kWidth * 4;
  auto writer = gguf::Writer::create(path);
  ASSERT_TRUE(writer.ok());
  writer->add_string("general.architecture", model.architecture);
  for (const auto& [key, value] : {std::pair{"block_count", 1u},
                                   {"embedding_length", 32u},
                                   {"expert_count", 2u},
                                   {"expert_used_count", 1u},
                                   {"expert_feed_forward_length", 32u}})
    writer->add_u32("qwen3moe." + std::string(key), value);
  const auto part = [&](char c) { return std::string(kPart, c); };
  std::string data;
  if (model.fused) {
    writer->add_tensor("blk.0.ffn_gate_up_exps.weight", TensorType::kF32, Shape{kWidth, 2 * kWidth, 2});
    data += part('a') + part('c') + part('b') + part('d');
  } else {
    writer->add_tensor("blk.0.ffn_gate_exps.weight", TensorType::kF32, Shape{kWidth, kWidth, 2});
    writer->add_tensor("blk.0.ffn_up_exps.weight", TensorType::kF32, Shape{kWidth, kWidth, model.up_experts});
    data += part('a') + part('b') + part('c') + (model.up_experts == 2 ? part('d') : "");
  }
  writer->add_tensor("blk.0.ffn_down_exps.weight", TensorType::kF32, Shape{kWidth, kWidth, 2});
  data += part('e') + part('f');
  if (model.with_bias) {
    writer->add_tensor("blk.0.ffn_down_exps.bias", TensorType::kF32, Shape{kWidth, 2});
    data += std::string(kWidth * 2 * 4, 'g');
  }
  ASSERT_TRUE(writer->write(gguf::as_bytes(data)).ok());
  ASSERT_TRUE(writer->finish().ok());
}

TEST(Experts, FusedGateAndUp_GiveTheSameSlabs) {
  const test::TempDir dir;
  write_small(dir / "apart.gguf", {});
  write_small(dir / "fused.gguf", {.fused = true});
  const auto apart = manifest_of(dir / "apart.gguf");
  EXPECT_EQ(apart, manifest_of(dir / "fused.gguf"));
  EXPECT_NE(apart.slab_id(0, 0), apart.slab_id(0, 1));
}

TEST(Experts, WrongFiles_AreRefusedByName) {
  const test::TempDir dir;
  const auto error_of = [&](const SmallModel& model) {
    write_small(dir / "x.gguf", model);
    const auto experts = find_experts(open(dir / "x.gguf"));
    return experts.ok() ? std::string("accepted") : experts.error().text();
  };
  const std::string shape = error_of({.up_experts = 1});
  EXPECT_NE(shape.find("tensor blk.0.ffn_up_exps.weight (offset "), std::string::npos) << shape;
  EXPECT_NE(shape.find(") has the shape [32, 32, 1]; [32, 32, 2]"), std::string::npos) << shape;
  EXPECT_NE(error_of({.with_bias = true}).find("tensor blk.0.ffn_down_exps.bias (offset "), std::string::npos);
  EXPECT_NE(error_of({.architecture = "wombat"}).find("wombat"), std::string::npos);
}

TEST(Manifest, SameForEveryThreadCount) {
  const auto file = open(tiny());
  const auto experts = experts_of(file);
  const Manifest expected = manifest_of(tiny());
  for (const std::size_t n : {1, 2, 5}) {
    Threads threads(n);
    std::uint64_t last = 0;
    std::uint64_t total = 0;
    const auto manifest = compute(file, experts, threads, [&](std::uint64_t done, std::uint64_t all) {
      EXPECT_GT(done, last);
      last = done;
      total = all;
    });
    ASSERT_TRUE(manifest.ok()) << manifest.error().text();
    EXPECT_EQ(*manifest, expected) << n << " threads";
    EXPECT_EQ(last, experts.total_bytes());
    EXPECT_EQ(total, experts.total_bytes());
  }
}

TEST(Manifest, DemoModel_HasAnIdForEverySlab) {
  const auto manifest = manifest_of(test::demo_model());
  EXPECT_EQ(manifest.slab_ids.size(), std::size_t{manifest.n_layers()} * manifest.n_experts);
  EXPECT_EQ(std::count(manifest.slab_ids.begin(), manifest.slab_ids.end(), Sha256{}), 0);
}

TEST(Manifest, OneFlippedByte_ChangesOneSlabIdAndTheHash) {
  const test::TempDir dir;
  const Manifest before = manifest_of(tiny());
  std::string bytes = test::read_file(tiny());
  const auto file = open(tiny());
  const LayerExperts layer = experts_of(file).layers[1];
  const std::uint64_t places[] = {layer.gate.file_offset + 3 * layer.gate.stride,
                                  layer.up.file_offset + 4 * layer.up.stride - 1,
                                  layer.down.file_offset + 3 * layer.down.stride + 100};
  for (const std::uint64_t place : places) {
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    test::write_file(dir / "x.gguf", bytes);
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    const Manifest after = manifest_of(dir / "x.gguf");
    EXPECT_NE(after.hash, before.hash);
    for (std::uint32_t l = 0; l < 2; ++l) {
      for (std::uint32_t e = 0; e < 8; ++e)
        EXPECT_EQ(after.slab_id(l, e) == before.slab_id(l, e), !(l == 1 && e == 3)) << l << " " << e;
    }
  }
}

TEST(Manifest, FileCutShortAfterOpen_IsAnError) {
  const test::TempDir dir;
  std::filesystem::copy_file(tiny(), dir / "x.gguf");
  const auto file = open(dir / "x.gguf");
  const auto experts = experts_of(file);
  std::filesystem::resize_file(dir / "x.gguf", experts.layers[1].down.file_offset);
  Threads threads(3);
  const auto manifest = compute(file, experts, threads, no_progress);
  ASSERT_FALSE(manifest.ok());
  EXPECT_NE(manifest.error().text().find("has become shorter"), std::string::npos) << manifest.error().text();
}

TEST(ManifestBytes, RoundTrip) {
  const Manifest manifest = manifest_of(tiny());
  const std::string bytes = serialize(manifest);
  const auto parsed = parse(gguf::as_bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(*parsed, manifest);
}

TEST(ManifestBytes, CutOrFlippedAnywhere_IsRefused) {
  const std::string bytes = serialize(manifest_of(tiny()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::vector<std::byte> cut(gguf::as_bytes(bytes).begin(),
                                     gguf::as_bytes(bytes).begin() + static_cast<long>(i));
    ASSERT_FALSE(parse(cut).ok()) << i;
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(~flipped[i]);
    ASSERT_FALSE(parse(gguf::as_bytes(flipped)).ok()) << i;
  }
  EXPECT_FALSE(parse(gguf::as_bytes(bytes + "x")).ok());
}

// A sender that computes the hash over hostile numbers: the checks before it must hold by themselves.
TEST(ManifestBytes, HostileNumbersUnderARightHash_AreRefused) {
  const Manifest good = manifest_of(tiny());
  const auto refused = [&](auto change) {
    Manifest bad = good;
    change(bad);
    return !parse(gguf::as_bytes(serialize(bad))).ok();
  };
  EXPECT_FALSE(refused([](Manifest&) {}));
  EXPECT_TRUE(refused([](Manifest& m) { m.d_model = 0; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.d_model = 0xffffffff; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.n_experts = 0xffffffff; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.top_k = 9; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.shift = 37; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.shift = -1; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.architecture = ""; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.architecture = "a\nb"; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.layers[0].ff = 33; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.layers[0].ff = 0; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.layers[0].n_experts = 7; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.layers[0].types.up = static_cast<TensorType>(4); }));
  EXPECT_TRUE(refused([](Manifest& m) { m.slab_ids.pop_back(); }));
}

class ManifestCache : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::copy_file(tiny(), dir_ / "model.gguf"); }
  LoadedManifest load_model() {
    Serial serial;
    const auto file = open(dir_ / "model.gguf");
    auto loaded = load(file, experts_of(file), dir_ / "cache", serial, no_progress);
    EXPECT_TRUE(loaded.ok()) << loaded.error().text();
    return std::move(loaded).value();
  }
  std::filesystem::path cache_file() const { return std::filesystem::directory_iterator(dir_ / "cache")->path(); }
  test::TempDir dir_;
};

// Whatever names weights by it: another second shard, and an error where one cannot be looked at.
TEST(ModelIdentity, AnyShardReplaced_IsAnotherModel) {
  const test::TempDir dir;
  const auto shard = [&](int number) { return dir / fmt::format("m-{:05}-of-00002.gguf", number); };
  const auto write = [&](int number, std::byte value) {
    auto writer = gguf::Writer::create(shard(number)).value();
    if (number == 1) writer.add_string("general.architecture", "qwen3moe");
    writer.add_u16("split.no", static_cast<std::uint16_t>(number - 1));
    writer.add_u16("split.count", 2);
    writer.add_i32("split.tensors.count", 2);
    writer.add_tensor(number == 1 ? "a" : "b", TensorType::kF32, Shape{8});
    ASSERT_TRUE(writer.write(std::vector<std::byte>(32, value)).ok());
    ASSERT_TRUE(writer.finish().ok());
  };
  write(1, std::byte{1});
  write(2, std::byte{1});
  const auto first = identity(open(shard(1)));
  ASSERT_TRUE(first.ok()) << first.error().text();
  EXPECT_EQ(identity(open(shard(1))).value(), *first);
  const auto changed = std::filesystem::last_write_time(shard(2));
  write(2, std::byte{2});
  std::filesystem::last_write_time(shard(2), changed);
  EXPECT_NE(identity(open(shard(1))).value(), *first) << "of the same size and time";
}

TEST_F(ManifestCache, SecondLoad_ComesFromTheCache) {
  const auto first = load_model();
  EXPECT_FALSE(first.from_cache);
  EXPECT_EQ(first.cache_note, "");
  const auto second = load_model();
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.manifest, first.manifest);
}

TEST_F(ManifestCache, ChangedModel_IsHashedAgain) {
  const auto first = load_model();
  std::string bytes = test::read_file(dir_ / "model.gguf");
  bytes[open(dir_ / "model.gguf").find_tensor("blk.0.ffn_up_exps.weight")->file_offset] ^= 1;
  test::write_file(dir_ / "model.gguf", bytes);
  const auto second = load_model();
  EXPECT_FALSE(second.from_cache);
  EXPECT_NE(second.cache_note.find("has changed"), std::string::npos) << second.cache_note;
  EXPECT_NE(second.manifest.hash, first.manifest.hash);
  EXPECT_TRUE(load_model().from_cache);
}

TEST_F(ManifestCache, DamagedCacheFile_IsHashedAgain) {
  const auto first = load_model();
  const std::string bytes = test::read_file(cache_file());
  for (std::size_t i = 0; i < bytes.size(); i += 13) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(~damaged[i]);
    test::write_file(cache_file(), damaged);
    const auto again = load_model();
    ASSERT_FALSE(again.from_cache) << i;
    ASSERT_NE(again.cache_note, "");
    ASSERT_EQ(again.manifest, first.manifest);
    test::write_file(cache_file(), bytes.substr(0, i));
    ASSERT_FALSE(load_model().from_cache) << i;
  }
}

TEST_F(ManifestCache, FolderThatCannotBe_IsOnlyANote) {
  test::write_file(dir_ / "cache", "a file");
  const auto loaded = load_model();
  EXPECT_FALSE(loaded.from_cache);
  EXPECT_NE(loaded.cache_note.find("not written"), std::string::npos) << loaded.cache_note;
}

TEST(ManifestCacheDir, FollowsTheXdgRule) {
  EXPECT_EQ(default_cache_dir("/x", "/h"), "/x/terrace");
  EXPECT_EQ(default_cache_dir(nullptr, "/h"), "/h/.cache/terrace");
  EXPECT_EQ(default_cache_dir("", "/h"), "/h/.cache/terrace");
  EXPECT_EQ(default_cache_dir("relative", "/h"), "/h/.cache/terrace");
  EXPECT_TRUE(default_cache_dir(nullptr, nullptr).empty());
}

}  // namespace
}  // namespace terrace::manifest
