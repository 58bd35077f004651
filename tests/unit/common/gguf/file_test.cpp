#include "common/gguf/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "common/gguf/bytes.h"
#include "common/gguf/writer.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::gguf {
namespace {

using Shape = std::vector<std::uint64_t>;

bool says(const Error& error, const std::string& word) { return error.text().find(word) != std::string::npos; }

std::string pattern(std::size_t n, char seed) {
  std::string out(n, '\0');
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<char>(seed + static_cast<char>(i * 7));
  return out;
}

// What a shard says of itself, and the one tensor that it holds.
struct ShardSpec {
  std::uint16_t no = 0;
  std::uint16_t count = 1;
  std::int32_t n_tensors = 1;
  std::string tensor = "a";
};

void write_shard(const std::filesystem::path& path, const ShardSpec& spec) {
  auto writer = Writer::create(path);
  ASSERT_TRUE(writer.ok()) << writer.error().text();
  if (spec.no == 0) writer->add_string("general.architecture", "qwen3moe");
  writer->add_u16("split.no", spec.no);
  writer->add_u16("split.count", spec.count);
  writer->add_i32("split.tensors.count", spec.n_tensors);
  writer->add_tensor(spec.tensor, TensorType::kF32, Shape{8});
  ASSERT_TRUE(writer->write(as_bytes(pattern(32, static_cast<char>(spec.no)))).ok());
  const auto status = writer->finish();
  ASSERT_TRUE(status.ok()) << status.error().text();
}

class SplitSet : public ::testing::Test {
 protected:
  void SetUp() override {
    write(1, {0, 3, 3, "a"});
    write(2, {1, 3, 3, "b"});
    write(3, {2, 3, 3, "c"});
  }
  std::filesystem::path shard(int number) const { return dir_ / fmt::format("m-{:05}-of-00003.gguf", number); }
  void write(int number, const ShardSpec& spec) { write_shard(shard(number), spec); }
  Error open_error() const {
    const auto file = File::open(shard(1));
    if (file.ok()) ADD_FAILURE() << "opened";
    return file.ok() ? Error(ErrorCode::kInternal, "") : file.error();
  }
  test::TempDir dir_;
};

TEST_F(SplitSet, AllShardsAreFoundByTheFirst) {
  const auto file = File::open(shard(1));
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->n_shards(), 3u);
  ASSERT_EQ(file->tensors().size(), 3u);
  const TensorInfo* c = file->find_tensor("c");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->shard, 2u);
  EXPECT_EQ(file->path(2), shard(3));
  EXPECT_EQ(as_text(file->data(*c)), pattern(32, 2));
  EXPECT_EQ(file->file_bytes(), 3 * std::filesystem::file_size(shard(2)) +
                                    (std::filesystem::file_size(shard(1)) - std::filesystem::file_size(shard(2))));
}

TEST_F(SplitSet, MissingShard_IsNamed) {
  std::filesystem::remove(shard(2));
  const Error error = open_error();
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(says(error, "m-00002-of-00003.gguf")) << error.text();
}

TEST_F(SplitSet, LaterShardOpened_SaysWhichToOpen) {
  const auto file = File::open(shard(2));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(says(file.error(), "open m-00001-of-00003.gguf")) << file.error().text();
}

TEST_F(SplitSet, ShardDoubledUnderAnotherName_IsNamed) {
  write(3, {1, 3, 3, "b"});
  const Error error = open_error();
  EXPECT_TRUE(says(error, "m-00003-of-00003.gguf") && says(error, "split.no (offset ") &&
              says(error, "is 1, its name says 2"))
      << error.text();
}

TEST_F(SplitSet, TensorInTwoShards_NamesBoth) {
  write(3, {2, 3, 3, "b"});
  const Error error = open_error();
  EXPECT_TRUE(says(error, "m-00003-of") && says(error, "m-00002-of") && says(error, "tensor b")) << error.text();
}

TEST_F(SplitSet, CountThatDiffers_IsRefused) {
  write(2, {1, 4, 3, "b"});
  const Error error = open_error();
  EXPECT_TRUE(says(error, "split.count (offset ") && says(error, "is 4, 3 in the first")) << error.text();
}

TEST_F(SplitSet, TensorTotalThatDiffers_IsRefused) {
  write(2, {1, 3, 7, "b"});
  const Error one = open_error();
  EXPECT_TRUE(says(one, "split.tensors.count (offset ") && says(one, "is 7, 3 in the first")) << one.text();
  write(1, {0, 3, 4, "a"});
  write(2, {1, 3, 4, "b"});
  write(3, {2, 3, 4, "c"});
  const Error all = open_error();
  EXPECT_TRUE(says(all, "split.tensors.count (offset ") && says(all, "hold 3 tensors")) << all.text();
}

TEST_F(SplitSet, CountThatTheNameContradicts_IsRefused) {
  write(1, {0, 2, 3, "a"});
  const Error error = open_error();
  EXPECT_TRUE(says(error, "split.count (offset ") && says(error, "-00001-of-00002.gguf")) << error.text();
}

TEST_F(SplitSet, DamagedLaterShard_IsNamed) {
  const std::string bytes = test::read_file(shard(3));
  test::write_file(shard(3), bytes.substr(0, bytes.size() - 1));
  const Error error = open_error();
  EXPECT_TRUE(says(error, "m-00003-of-00003.gguf") && says(error, "tensor c")) << error.text();
}

TEST(File, WriterAndReader_Agree) {
  const test::TempDir dir;
  const std::vector<std::string> words = {"", "a", "Größe"};
  const std::vector<std::int32_t> ints = {-1, 0, 7};
  const std::vector<float> floats = {0.5F, -2.0F};
  {
    auto writer = Writer::create(dir / "x.gguf");
    ASSERT_TRUE(writer.ok()) << writer.error().text();
    writer->add_string("general.architecture", "wombat");
    writer->add_u64("n", 5000000000);
    writer->add_f32("f", 1e-6F);
    writer->add_bool("b", true);
    writer->add_strings("words", words);
    writer->add_i32s("ints", ints);
    writer->add_f32s("floats", floats);
    writer->add_tensor("t0", TensorType::kF32, Shape{3});
    writer->add_tensor("t1", TensorType::kQ8_0, Shape{64, 2, 3});
    // Cut across the border between the two.
    const std::string data = pattern(12 + 408, 1);
    ASSERT_TRUE(writer->write(as_bytes(data.substr(0, 5))).ok());
    ASSERT_TRUE(writer->write(as_bytes(data.substr(5, 100))).ok());
    ASSERT_TRUE(writer->write(as_bytes(data.substr(105))).ok());
    EXPECT_FALSE(std::filesystem::exists(dir / "x.gguf"));
    ASSERT_TRUE(writer->finish().ok());
  }
  auto opened = File::open(dir / "x.gguf");
  ASSERT_TRUE(opened.ok()) << opened.error().text();
  const File file = std::move(opened).value();
  EXPECT_EQ(file.architecture().value(), "wombat");
  EXPECT_EQ(file.get_u64("n").value(), 5000000000u);
  EXPECT_EQ(file.get_f32("f").value(), 1e-6F);
  EXPECT_TRUE(file.get_bool("b").value());
  EXPECT_EQ(file.get_i32s("ints").value(), ints);
  EXPECT_EQ(file.get_f32s("floats").value(), floats);
  const auto strings = file.get_strings("words").value();
  EXPECT_EQ(std::vector<std::string>(strings.begin(), strings.end()), words);
  const TensorInfo& t1 = *file.get_tensor("t1").value();
  EXPECT_EQ(t1.n_values(), 384u);
  EXPECT_EQ(t1.shape, (std::array<std::uint64_t, 4>{64, 2, 3, 1}));
  EXPECT_EQ(t1.file_offset % 32, 0u);
  EXPECT_EQ(as_text(file.data(t1)), pattern(12 + 408, 1).substr(12));
  EXPECT_EQ(file.metadata().entries()[1].key, "n");
}

TEST(File, Getters_NameKeyAndFoundType) {
  const auto file = File::open(test::data_dir() / "gguf" / "base.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->get_u32("qwen3moe.nothing").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(file->get_u32_or("qwen3moe.nothing", 3).value(), 3u);
  for (const Error& error : {file->get_u32("general.name").error(), file->get_u32_or("general.name", 3).error(),
                             file->get_f32("general.name").error(), file->get_i32s("general.name").error()}) {
    EXPECT_TRUE(says(error, "base.gguf") && says(error, "general.name") && says(error, "type string")) << error.text();
  }
  EXPECT_TRUE(says(file->get_string("qwen3moe.block_count").error(), "type u32"));
  EXPECT_TRUE(says(file->get_tensor("nothing").error(), "nothing"));
}

TEST(File, IntegerOutOfRange_NamesValueAndRange) {
  const test::TempDir dir;
  auto writer = Writer::create(dir / "x.gguf");
  ASSERT_TRUE(writer.ok());
  writer->add_i32("negative", -32);
  writer->add_u64("large", 1ULL << 32);
  ASSERT_TRUE(writer->finish().ok());
  const auto file = File::open(dir / "x.gguf");
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_TRUE(says(file->get_u32("negative").error(), "is -32; 0 to 4294967295"));
  EXPECT_TRUE(says(file->get_u32("large").error(), "is 4294967296; 0 to 4294967295"));
  EXPECT_EQ(file->get_u64("large").value(), 1ULL << 32);
}

TEST(File, FolderPipeOrNothing_IsRefusedByName) {
  const test::TempDir dir;
  EXPECT_EQ(File::open(dir.path()).error().code(), ErrorCode::kInvalidArgument);
  const auto missing = File::open(dir / "none.gguf");
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(says(missing.error(), "none.gguf"));
}

TEST(Writer, BadDeclarations_AreNamedAndLeaveNoFile) {
  const test::TempDir dir;
  const auto error_of = [&](auto declare) {
    auto writer = Writer::create(dir / "x.gguf");
    declare(*writer);
    const auto status = writer->finish();
    return status.ok() ? std::string("accepted") : status.error().text();
  };
  EXPECT_NE(error_of([](Writer& w) { w.add_u32("k", 1), w.add_u32("k", 2); }).find("key k was added twice"),
            std::string::npos);
  EXPECT_NE(error_of([](Writer& w) { w.add_tensor("t", TensorType::kQ4_K, Shape{32}); }).find("tensor t"),
            std::string::npos);
  EXPECT_NE(error_of([](Writer& w) { w.add_tensor("t", TensorType::kF32, Shape{32}); }).find("not complete"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Value, TextOfStrings_TellsAQuoteInsideFromItsEnd) {
  const test::TempDir dir;
  auto writer = Writer::create(dir / "x.gguf");
  ASSERT_TRUE(writer.ok());
  const std::vector<std::string> values = {"a\", \"b", "\\", "c\n"};
  writer->add_strings("names", values);
  ASSERT_TRUE(writer->finish().ok());
  const auto file = File::open(dir / "x.gguf");
  ASSERT_TRUE(file.ok()) << file.error().text();
  EXPECT_EQ(file->find("names")->text(), R"(["a\", \"b", "\\", "c\x0a"])");
}

TEST(Writer, FileSizeLimit_IsReportedWithTheReason) {
  const test::TempDir dir;
  auto writer = Writer::create(dir / "x.gguf");
  ASSERT_TRUE(writer.ok());
  writer->add_tensor("t", TensorType::kI8, Shape{1 << 20});
  // Stands for a full disk, which a test cannot have: write() fails in the same place with another reason.
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 300 * 1024;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto status = writer->write(as_bytes(std::string(1 << 20, 'x')));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(says(status.error(), "File too large") && says(status.error(), "x.gguf")) << status.error().text();
}

}  // namespace
}  // namespace terrace::gguf
