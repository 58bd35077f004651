// Bug classes of split sets.
#include <fmt/format.h>

#include "tests/hostile/support/bug_class.h"

namespace terrace::test {
namespace split_test {

using raw::number;

// base.gguf with an output head of its own, cut into shards.
class GgufBugClass : public BugClassFiles {
 protected:
  static RawGguf model() {
    RawGguf raw = RawGguf::base();
    RawTensor head = raw.tensor("token_embd.weight");
    head.name = "output.weight";
    // Not the embedding's bytes: a head that is taken for tied gives other logits.
    std::rotate(head.data.begin(), head.data.begin() + 34 * 7, head.data.end());
    raw.tensors.push_back(head);
    return raw;
  }

  struct Split {
    std::uint32_t no_type = raw::kU16, count_type = raw::kU16, total_type = raw::kI32;
  };
  // The tensors shard by shard, the keys in the first.
  std::filesystem::path write_shards(const RawGguf& whole, const std::vector<std::vector<std::string>>& shards) const {
    return write_shards(whole, shards, Split());
  }
  std::filesystem::path write_shards(const RawGguf& whole, const std::vector<std::vector<std::string>>& shards,
                                     const Split& types) const {
    const auto typed = [](std::uint32_t type, std::uint32_t value) {
      return type == raw::kU16   ? number(static_cast<std::uint16_t>(value))
             : type == raw::kU64 ? number(std::uint64_t{value})
                                 : number(value);
    };
    for (std::size_t i = 0; i < shards.size(); ++i) {
      RawGguf shard;
      if (i == 0) shard.keys = whole.keys;
      shard.set("split.no", types.no_type, typed(types.no_type, static_cast<std::uint32_t>(i)));
      shard.set("split.count", types.count_type, typed(types.count_type, static_cast<std::uint32_t>(shards.size())));
      shard.set("split.tensors.count", types.total_type,
                typed(types.total_type, static_cast<std::uint32_t>(whole.tensors.size())));
      RawGguf rest = whole;
      for (const std::string& name : shards[i]) shard.tensors.push_back(rest.take_tensor(name));
      write(shard, name_of(i, shards.size()));
    }
    return dir_ / name_of(0, shards.size());
  }
  static std::string name_of(std::size_t i, std::size_t n) { return fmt::format("m-{:05}-of-{:05}.gguf", i + 1, n); }

  static std::vector<std::string> names(const RawGguf& raw) {
    std::vector<std::string> all;
    for (const RawTensor& tensor : raw.tensors) all.push_back(tensor.name);
    return all;
  }
  // Two shards, the head alone in the second.
  std::filesystem::path write_two() const {
    std::vector<std::string> first = names(model());
    first.pop_back();
    return write_shards(model(), {first, {"output.weight"}});
  }
};

TEST_F(GgufBugClass, C10_WrongFirstFile_SaysWhichToOpen) {
  write_two();
  expect_says(error_of(gguf::File::open(dir_ / name_of(1, 2))), ErrorCode::kInvalidArgument,
              {"split.no (offset", "shard 2 of 2; open " + name_of(0, 2)});
}

TEST_F(GgufBugClass, C11_ShardMissing_IsNamedAndNeverHalfAModel) {
  const auto first = write_two();
  std::filesystem::remove(dir_ / name_of(1, 2));
  expect_says(error_of(gguf::File::open(first)), ErrorCode::kNotFound, {name_of(1, 2), "shard 2 of 2 is missing"});
}

TEST_F(GgufBugClass, C12_MetadataOnlyFirstShard_IsAccepted) {
  const RawGguf whole = model();
  const auto first = write_shards(whole, {{}, names(whole)});
  EXPECT_EQ(difference(run(write(whole, "whole.gguf")), run(first)), std::nullopt);
}

TEST_F(GgufBugClass, C13_NumbersFrom0NamesFrom1CountsOfAnyWidth_AreAcceptedAndContradictionsNamed) {
  const RawGguf whole = model();
  std::vector<std::string> first = names(whole);
  first.pop_back();
  const GateRun expected = run(write(whole, "whole.gguf"));
  for (const std::uint32_t type : {raw::kU16, raw::kU32, raw::kI32, raw::kU64})
    EXPECT_EQ(difference(expected, run(write_shards(whole, {first, {"output.weight"}}, {type, type, type}))),
              std::nullopt)
        << "type " << type;

  // Numbers from 1, as the names are: the first shard then calls itself the second.
  RawGguf shard = whole;
  shard.set("split.no", raw::kU16, number(std::uint16_t{1}));
  shard.set("split.count", raw::kU16, number(std::uint16_t{2}));
  write(shard, name_of(0, 2));
  expect_says(error_of(gguf::File::open(dir_ / name_of(0, 2))), ErrorCode::kInvalidArgument, {"split.no (offset"});
  // A count that the name contradicts; the total of all shards taken for one shard's.
  shard.set("split.no", raw::kU16, number(std::uint16_t{0}));
  shard.set("split.count", raw::kU16, number(std::uint16_t{3}));
  write(shard, name_of(0, 2));
  expect_says(error_of(gguf::File::open(dir_ / name_of(0, 2))), ErrorCode::kCorrupt,
              {"split.count (offset", "is 3", "-00001-of-00003.gguf"});
  shard.set("split.count", raw::kU16, number(std::uint16_t{1}));
  shard.set("split.tensors.count", raw::kI32, number(99));
  write(shard, "one.gguf");
  expect_says(error_of(gguf::File::open(dir_ / "one.gguf")), ErrorCode::kCorrupt,
              {"split.tensors.count (offset", "is 99", "hold 15 tensors"});
}

TEST_F(GgufBugClass, C14_HeadInAnotherShard_IsUsedNotTheTiedEmbedding) {
  const GateRun untied = run(write(model(), "whole.gguf"));
  ASSERT_NE(difference(untied, run(write(RawGguf::base(), "tied.gguf"))), std::nullopt);
  EXPECT_EQ(difference(untied, run(write_two())), std::nullopt);
}

}  // namespace split_test
}  // namespace terrace::test
