// A model file: the tables of one shard, and what is looked up in them; then the file as a model with experts.
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/gguf/file.h"
#include "common/gguf/shard.h"
#include "common/gguf/writer.h"
#include "common/manifest/experts.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::fuzz {
namespace {

// True: its tables are lawful.
bool read_shard(std::span<const std::byte> input) {
  const auto table = gguf::parse_shard(input);
  if (!table.ok()) {
    TERRACE_CHECK(!table.error().text().empty(), "an error without why");
    return false;
  }
  for (const gguf::TensorInfo& tensor : table->tensors) {
    TERRACE_CHECK(tensor.bytes <= input.size() && table->data_start <= input.size(), "a tensor larger than its file");
    (void)tensor.shape_text();
  }
  for (const auto& entry : table->metadata.entries()) (void)entry.value.text();
  return true;
}

// A file without a name on any disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    TERRACE_CHECK(fd_ >= 0, "memfd_create");
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(fd_, bytes.data() + at, bytes.size() - at);
      TERRACE_CHECK(n > 0, "memory for the input");
      at += static_cast<std::size_t>(n);
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void read_model(std::span<const std::byte> input) {
  const MemoryFile memory(input);
  const auto file = gguf::File::open(memory.path());
  if (!file.ok()) return;
  (void)file->architecture();
  const auto experts = manifest::find_experts(*file);
  if (!experts.ok()) return;
  TERRACE_CHECK(experts->total_bytes() <= input.size(), "experts larger than their file");
}

}  // namespace

void run_target(std::span<const std::byte> input) {
  if (read_shard(input)) read_model(input);
}

std::vector<Seed> make_seeds() {
  const test::TempDir dir;
  const std::filesystem::path path = dir / "seed.gguf";
  constexpr std::uint32_t kWidth = 32, kExperts = 2;
  auto writer = gguf::Writer::create(path);
  writer->add_string("general.architecture", "qwen3moe");
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, std::uint32_t>>{{"block_count", 1},
                                                                    {"context_length", 64},
                                                                    {"embedding_length", kWidth},
                                                                    {"expert_count", kExperts},
                                                                    {"expert_used_count", 1},
                                                                    {"expert_feed_forward_length", kWidth}})
    writer->add_u32(std::string("qwen3moe.") + key, value);
  writer->add_f32("qwen3moe.rope.freq_base", 10000.0f);
  const std::vector<std::string> words = {"a", "b", ""};
  writer->add_strings("tokenizer.ggml.tokens", words);
  for (const char* role : {"gate", "up", "down"}) {
    const std::uint64_t shape[] = {kWidth, kWidth, kExperts};
    writer->add_tensor(std::string("blk.0.ffn_") + role + "_exps.weight", TensorType::kQ8_0, shape);
  }
  const std::vector<std::byte> data(3 * kExperts * kWidth * 34, std::byte{1});
  TERRACE_CHECK(writer->write(data).ok() && writer->finish().ok(), "the seed is written");
  TERRACE_CHECK(manifest::find_experts(gguf::File::open(path).value()).ok(), "the seed is a model with experts");
  return {{"tiny-moe.gguf", test::read_array<std::byte>(path)}};
}

}  // namespace terrace::fuzz
