#include "coordinator/legs/file_slabs.h"

#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/manifest/slab.h"
#include "coordinator/legs/slab_reader.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"
#include "tests/unit/coordinator/legs/expert_file.h"

namespace terrace::legs {
namespace file_slabs_test {

gguf::File open(const std::filesystem::path& path) {
  auto file = gguf::File::open(path);
  TERRACE_CHECK(file.ok(), "a model file opens");
  return std::move(file).value();
}

// Every slab of the file through the mapping, against what manifest::read_slab() reads.
void expect_equal_to_read_slab(const std::filesystem::path& path) {
  const gguf::File file = open(path);
  const auto experts = manifest::find_experts(file);
  ASSERT_TRUE(experts.ok()) << experts.error().text();
  const FileSlabs slabs(file, *experts);
  for (std::uint32_t layer = 0; layer < experts->layers.size(); ++layer) {
    const kernels::ExpertShape shape = expert_shape(experts->layers[layer].shape);
    ASSERT_EQ(shape.slab_bytes(), experts->slab_bytes(layer));
    for (std::uint16_t expert = 0; expert < experts->n_experts; ++expert) {
      std::vector<std::byte> read(shape.slab_bytes());
      ASSERT_TRUE(manifest::read_slab(file, *experts, layer, expert, read).ok());
      const kernels::SlabView view = slabs.lookup()(layer, expert);
      const std::byte* at = read.data();
      EXPECT_EQ(std::memcmp(view.gate, at, shape.gate_bytes()), 0) << layer << ", " << expert;
      EXPECT_EQ(std::memcmp(view.up, at + shape.gate_bytes(), shape.up_bytes()), 0) << layer << ", " << expert;
      EXPECT_EQ(std::memcmp(view.down, at + shape.gate_bytes() + shape.up_bytes(), shape.down_bytes()), 0)
          << layer << ", " << expert;
    }
  }
}

// In pieces that end in the middle of a part and of a page: what a card's writer asks for.
TEST(FileSlabs, PartsReadPieceByPiece_AreThoseOfTheMapping) {
  const terrace::test::TempDir dir;
  write_model(dir / "fused.gguf", true, TensorType::kQ8_0);
  for (const auto& path : {terrace::test::data_dir() / "tiny" / "tiny-mix.gguf", dir / "fused.gguf"}) {
    const gguf::File file = open(path);
    const auto experts = manifest::find_experts(file);
    ASSERT_TRUE(experts.ok()) << experts.error().text();
    const FileSlabs slabs(file, *experts);
    const SlabPartReader read = file_part_reader(file, *experts);
    const auto expect_part = [&](std::uint32_t layer, std::uint16_t expert, SlabPart part, const std::byte* expected,
                                 std::uint64_t bytes) {
      std::vector<std::byte> got(bytes);
      constexpr std::uint64_t kPiece = 777;
      for (std::uint64_t at = 0; at < bytes; at += kPiece) {
        const auto to = std::span(got).subspan(at, std::min(kPiece, bytes - at));
        ASSERT_TRUE(read(layer, expert, part, at, to).ok());
      }
      EXPECT_EQ(std::memcmp(got.data(), expected, bytes), 0) << path << ", " << layer << ", " << expert;
    };
    for (std::uint32_t layer = 0; layer < experts->layers.size(); ++layer)
      for (std::uint16_t expert = 0; expert < experts->n_experts; ++expert) {
        const kernels::ExpertShape shape = expert_shape(experts->layers[layer].shape);
        const kernels::SlabView view = slabs.view(layer, expert);
        expect_part(layer, expert, SlabPart::kGate, view.gate, shape.gate_bytes());
        expect_part(layer, expert, SlabPart::kUp, view.up, shape.up_bytes());
        expect_part(layer, expert, SlabPart::kDown, view.down, shape.down_bytes());
      }
  }
}

TEST(FileSlabs, TinyModels_EqualReadSlab) {
  expect_equal_to_read_slab(terrace::test::data_dir() / "tiny" / "tiny-q8_0.gguf");
  expect_equal_to_read_slab(terrace::test::data_dir() / "tiny" / "tiny-mix.gguf");
}

TEST(FileSlabs, FusedGateAndUp_EqualReadSlab) {
  const terrace::test::TempDir dir;
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0, TensorType::kQ4_K}) {
    write_model(dir / "apart.gguf", false, type);
    expect_equal_to_read_slab(dir / "apart.gguf");
    write_model(dir / "fused.gguf", true, type);
    expect_equal_to_read_slab(dir / "fused.gguf");
  }
}

// ---- slabs read into a ring -----------------------------------------------------------------------------------------

struct Slot {
  explicit Slot(std::size_t bytes) : buffer(*AlignedBuffer::allocate(bytes + SlabReader::kAlignment)) {
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
    memory = buffer.bytes().subspan((SlabReader::kAlignment - begin % SlabReader::kAlignment) % SlabReader::kAlignment,
                                    bytes);
  }
  AlignedBuffer buffer;
  std::span<std::byte> memory;
};

// Wherever its parts lie in the file, and where the file ends behind the last one.
void expect_reader_equals_mapping(const std::filesystem::path& path, bool direct, bool from_memory = false) {
  const gguf::File file = open(path);
  const auto experts = *manifest::find_experts(file);
  const FileSlabs slabs(file, experts);
  const auto reader = open_slab_reader(file, experts, direct);
  if (from_memory) reader->use_page_cache();
  Slot slot(reader->slot_bytes());
  for (std::uint32_t layer = 0; layer < experts.layers.size(); ++layer) {
    const kernels::ExpertShape shape = expert_shape(experts.layers[layer].shape);
    for (std::uint16_t expert = 0; expert < experts.n_experts; ++expert) {
      std::memset(slot.memory.data(), 0x5a, slot.memory.size());
      const auto read = reader->read(layer, expert, slot.memory);
      ASSERT_TRUE(read.ok()) << read.error().text();
      const kernels::SlabView view = slabs.view(layer, expert);
      EXPECT_EQ(std::memcmp(view.gate, read->gate, shape.gate_bytes()), 0) << layer << ", " << expert;
      EXPECT_EQ(std::memcmp(view.up, read->up, shape.up_bytes()), 0) << layer << ", " << expert;
      EXPECT_EQ(std::memcmp(view.down, read->down, shape.down_bytes()), 0) << layer << ", " << expert;
    }
  }
  EXPECT_EQ(reader->describe().find("asked for") != std::string::npos, !direct) << reader->describe();
}

TEST(SlabReader, DirectAndBuffered_EqualTheMapping) {
  const terrace::test::TempDir dir;
  write_model(dir / "apart.gguf", false, TensorType::kQ8_0);
  write_model(dir / "fused.gguf", true, TensorType::kQ4_K);
  for (const bool direct : {true, false})
    for (const auto& path :
         {terrace::test::data_dir() / "tiny" / "tiny-q8_0.gguf", terrace::test::data_dir() / "tiny" / "tiny-mix.gguf",
          std::filesystem::path(dir / "apart.gguf"), std::filesystem::path(dir / "fused.gguf")})
      expect_reader_equals_mapping(path, direct);
}

// Whether the system tells what of a file, that was read just now, is in memory.
bool tells_of_memory(const gguf::File& file) {
  char byte = 0;
  (void)::pread(file.fd(), &byte, 1, 0);
  const iovec to{&byte, 1};
  return ::preadv2(file.fd(), &to, 1, 0, RWF_NOWAIT) == 1;
}

TEST(SlabReader, PartsThatAreInMemory_AreCopiedFromThere) {
  const terrace::test::TempDir dir;
  for (const bool fused : {false, true}) {
    write_model(dir / "model.gguf", fused, TensorType::kQ8_0);
    expect_reader_equals_mapping(dir / "model.gguf", true, true);
    const gguf::File file = open(dir / "model.gguf");
    const auto experts = *manifest::find_experts(file);
    const auto reader = open_slab_reader(file, experts, true);
    Slot slot(reader->slot_bytes());
    ASSERT_TRUE(reader->read(0, 0, slot.memory).ok());
    EXPECT_EQ(reader->bytes_from_memory(), 0u) << "what measures the drive";
    reader->use_page_cache();
    ASSERT_TRUE(reader->read(0, 0, slot.memory).ok());
    if (tells_of_memory(file) && reader->describe() == "direct I/O") {
      EXPECT_EQ(reader->bytes_from_memory(), experts.slab_bytes(0));
    }
  }
}

TEST(SlabReader, FileCutShort_NamesTensorAndOffsetAndReadsTheRest) {
  const terrace::test::TempDir dir;
  for (const bool direct : {true, false}) {
    write_model(dir / "model.gguf", false, TensorType::kQ8_0);
    const gguf::File file = open(dir / "model.gguf");
    const auto experts = *manifest::find_experts(file);
    const auto reader = open_slab_reader(file, experts, direct);
    Slot slot(reader->slot_bytes());
    const std::uint64_t end = experts.layers[1].down.file_offset + experts.layers[1].down.stride + 100;
    std::filesystem::resize_file(dir / "model.gguf", end);  // in the last part of the last expert
    const auto read = reader->read(1, 1, slot.memory);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(read.error().text().find("model.gguf: tensor blk.1.ffn_down_exps.weight: cannot read at offset " +
                                       std::to_string(end)),
              std::string::npos)
        << read.error().text();
    EXPECT_TRUE(reader->read(1, 0, slot.memory).ok());
    EXPECT_TRUE(reader->read(0, 1, slot.memory).ok());
  }
}

TEST(SelectLayerKernels, OneEntryALayer) {
  const gguf::File file = open(terrace::test::data_dir() / "tiny" / "tiny-mix.gguf");
  const auto experts = manifest::find_experts(file);
  const auto selected =
      select_layer_kernels(*experts, kernels::detect_cpu_features(), std::nullopt, kernels::Activations::kQuantised);
  ASSERT_TRUE(selected.ok()) << selected.error().text();
  ASSERT_EQ(selected->size(), 2u);
  EXPECT_EQ((*selected)[1].shape, expert_shape(experts->layers[1].shape));
}

TEST(SelectLayerKernels, TypeWithoutKernels_NamesTheBlock) {
  const gguf::File file = open(terrace::test::data_dir() / "tiny" / "tiny-mix.gguf");
  auto experts = *manifest::find_experts(file);
  experts.layers[1].shape.types.down = TensorType::kQ5_1;
  const auto selected =
      select_layer_kernels(experts, kernels::detect_cpu_features(), std::nullopt, kernels::Activations::kQuantised);
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(selected.error().text().find("block 1"), std::string::npos) << selected.error().text();
  EXPECT_NE(selected.error().text().find("Q5_1"), std::string::npos) << selected.error().text();
}

}  // namespace file_slabs_test
}  // namespace terrace::legs
