// Bug classes that opening the file must find: header, keys, tensor table, extents. H: the handcrafted files of ggml's
// own reader; C: the classes by their number. README.md maps them.
#include <limits>

#include "tests/hostile/support/bug_class.h"

namespace terrace::test {
namespace container_test {

using raw::number;

constexpr std::uint64_t kTwoTo63 = std::uint64_t{1} << 63;
constexpr const char* kDown = "blk.0.ffn_down_exps.weight";  // the last tensor of the file

using GgufBugClass = BugClassFiles;

// ---- handcrafted files

TEST_F(GgufBugClass, H01_BadMagic_IsRefusedAtOffset0) {
  RawGguf raw = RawGguf::base();
  raw.magic = "FUGG";
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"magic (offset 0)", "FUGG"});
}

TEST_F(GgufBugClass, H02_Version0And1AndFuture_AreRefusedWithTheKnownOnes) {
  for (const std::uint32_t version : {0u, 1u, 4u, 1000u}) {
    RawGguf raw = RawGguf::base();
    raw.version = version;
    expect_says(open_error(raw), ErrorCode::kUnsupported, {"version (offset 4)", "2 and 3 can be read"});
  }
}

TEST_F(GgufBugClass, H03_BadTensorCount_IsRefusedBeforeTheTableIsRead) {
  for (const std::uint64_t count : {kTwoTo63, ~std::uint64_t{0}, std::uint64_t{1} << 32}) {
    RawGguf raw = RawGguf::base();
    raw.n_tensors = count;
    expect_says(open_error(raw), ErrorCode::kCorrupt, {"tensor count (offset 8)", std::to_string(count)});
  }
}

TEST_F(GgufBugClass, H04_BadKeyCount_IsRefused) {
  for (const std::uint64_t count : {kTwoTo63, ~std::uint64_t{0}, std::uint64_t{1} << 32}) {
    RawGguf raw = RawGguf::base();
    raw.n_keys = count;
    expect_says(open_error(raw), ErrorCode::kCorrupt, {"key count (offset 16)", std::to_string(count)});
  }
}

TEST_F(GgufBugClass, H05_EmptyFile_IsTooShort) {
  expect_says(open_error(std::string()), ErrorCode::kCorrupt, {"offset 0", "too short"});
}

TEST_F(GgufBugClass, H06_BadAndEmptyKey_AreRefused) {
  RawGguf empty = RawGguf::base();
  empty.set("", raw::kU32, number(1u));
  expect_says(open_error(empty), ErrorCode::kCorrupt, {"an empty key", "offset"});
  for (const std::string& name : {std::string("a\0b", 3), std::string("\xff\xfe"), std::string("line\nbreak")}) {
    RawGguf bad = RawGguf::base();
    bad.set(name, raw::kU32, number(1u));
    expect_says(open_error(bad), ErrorCode::kCorrupt, {"not printable", "offset"});
  }
}

TEST_F(GgufBugClass, H07_DuplicateKey_NamesBothOffsets) {
  RawGguf raw = RawGguf::base();
  raw.keys.push_back(raw.key("general.name"));
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"general.name (offset", "stands twice, first at offset"});
}

TEST_F(GgufBugClass, H08_BadValueType_IsRefusedAtTheKey) {
  RawGguf raw = RawGguf::base();
  raw.key("general.name").type = 13;
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"general.name (offset", "value type is 13"});
  RawGguf element = RawGguf::base();
  element.set("test.list", raw::kArray, raw::array(99, {}));
  expect_says(open_error(element), ErrorCode::kCorrupt, {"test.list (offset", "element type is 99"});
}

TEST_F(GgufBugClass, H09_AlignmentOfWrongValueOrType_IsRefused) {
  for (const std::uint32_t alignment : {0u, 4u, 24u, 33u, 0x80000001u}) {
    RawGguf raw = RawGguf::base();
    raw.set("general.alignment", raw::kU32, number(alignment));
    expect_says(open_error(raw), ErrorCode::kCorrupt, {"general.alignment (offset", "power of two"});
  }
  RawGguf raw = RawGguf::base();
  raw.set("general.alignment", raw::kU64, number(std::uint64_t{32}));
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"general.alignment (offset", "type u64"});
}

TEST_F(GgufBugClass, H10_TensorNameOf64Bytes_IsRefusedAnd63Accepted) {
  RawGguf raw = RawGguf::base();
  raw.tensors.push_back({std::string(64, 'x'), {8}, raw::kTypeF32, std::string(32, '\0')});
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"tensor name length is 64", "63 is the limit", "offset"});
  raw.tensors.back().name.pop_back();
  expect_as_base(write(raw));
}

TEST_F(GgufBugClass, H11_RankAbove4_IsRefusedBeforeItsDimensionsAreRead) {
  for (const std::uint32_t rank : {0u, 5u, std::numeric_limits<std::uint32_t>::max()}) {
    RawGguf raw = RawGguf::base();
    raw.tensor(kDown).rank = rank;
    expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "(offset", "dimensions; 1 to 4 are allowed"});
  }
}

TEST_F(GgufBugClass, H12_ZeroOrNegativeDimension_IsRefused) {
  RawGguf zero = RawGguf::base();
  zero.tensor(kDown).dims = {32, 0, 4};
  expect_says(open_error(zero), ErrorCode::kCorrupt, {kDown, "(offset", "a dimension is 0"});
  RawGguf negative = RawGguf::base();
  negative.tensor(kDown).dims = {32, static_cast<std::uint64_t>(-32), 4};
  expect_says(open_error(negative), ErrorCode::kCorrupt, {kDown, "(offset", "overflows"});
}

TEST_F(GgufBugClass, H13_ProductOfDimensionsTooBig_IsRefused) {
  RawGguf raw = RawGguf::base();  // 2^64 values: 0 where nobody looks
  raw.tensor(kDown).dims = {std::uint64_t{1} << 32, std::uint64_t{1} << 31, 2};
  expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "(offset", "overflows"});
}

TEST_F(GgufBugClass, H14_BytesTooBig_IsRefused) {
  RawGguf raw = RawGguf::base();  // 2^62 values are countable, their 2^64 bytes are not
  raw.tensor(kDown).dims = {std::uint64_t{1} << 31, std::uint64_t{1} << 31};
  raw.tensor(kDown).type = raw::kTypeF32;
  expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "(offset", "size in bytes overflows"});
}

TEST_F(GgufBugClass, H15_PaddingThatWraps_IsRefused) {
  RawGguf raw = RawGguf::base();  // padded to this, the data would begin far behind the file
  raw.set("general.alignment", raw::kU32, number(std::uint32_t{1} << 31));
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"general.alignment 2147483648", "offset 2147483648"});
  RawGguf last = RawGguf::base();  // its end, padded, is beyond 2^64
  last.tensor(kDown).offset = ~std::uint64_t{0} - 31;
  expect_says(open_error(last), ErrorCode::kCorrupt, {kDown, "past the end of the file"});
}

TEST_F(GgufBugClass, H16_BadTensorType_IsRefusedByNumber) {
  RawGguf raw = RawGguf::base();
  raw.tensor(kDown).type = 1000;
  expect_says(open_error(raw), ErrorCode::kUnsupported, {kDown, "(offset", "type 1000 is unknown"});
}

TEST_F(GgufBugClass, H17_BadDataOffset_IsRefused) {
  RawGguf odd = RawGguf::base();
  odd.tensor(kDown).offset = 33;
  expect_says(open_error(odd), ErrorCode::kCorrupt, {kDown, "(offset", "33 is no multiple of the alignment 32"});
  RawGguf overlap = RawGguf::base();
  overlap.tensor(kDown).offset = 0;
  expect_says(open_error(overlap), ErrorCode::kCorrupt, {kDown, "token_embd.weight", "overlaps"});
}

TEST_F(GgufBugClass, H18_DuplicateTensorName_NamesBothOffsets) {
  RawGguf raw = RawGguf::base();
  raw.tensors.push_back(raw.tensor(kDown));
  expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "stands twice", "first at offset"});
}

TEST_F(GgufBugClass, H19_AlignmentThatTheLayoutContradicts_IsRefused) {
  RawGguf raw = RawGguf::base();  // laid out by 32, said to be by 4096
  raw.set("general.alignment", raw::kU32, number(std::uint32_t{4096}));
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"tensor ", "(offset", "alignment 4096"});
}

TEST_F(GgufBugClass, H20_DataShorterThanSaid_IsRefusedByTheTensor) {
  const std::string whole = RawGguf::base().bytes();
  expect_says(open_error(whole.substr(0, whole.size() - 1)), ErrorCode::kCorrupt, {kDown, "past the end of the file"});
}

TEST_F(GgufBugClass, H21_SizesThatOverflowInAll_AreRefused) {
  RawGguf raw = RawGguf::base();  // each is countable in bytes, their sum is not
  for (const char* name : {"blk.0.ffn_up_exps.weight", kDown}) {
    raw.tensor(name).dims = {std::uint64_t{1} << 31, std::uint64_t{1} << 29};
    raw.tensor(name).type = raw::kTypeF32;
  }
  expect_says(open_error(raw), ErrorCode::kCorrupt, {"blk.0.ffn_up_exps.weight", "past the end of the file"});
}

TEST_F(GgufBugClass, H22_CustomAlignment_IsAccepted) {
  for (const std::uint32_t alignment : {8u, 64u, 4096u, 1u << 20}) {
    RawGguf raw = RawGguf::base();
    raw.alignment = alignment;
    raw.set("general.alignment", raw::kU32, number(alignment));
    expect_as_base(write(raw));
  }
}

// ---- by number

TEST_F(GgufBugClass, C01_TruncatedFile_IsRefusedWhenOpenedAndNamesTheTensor) {
  const std::string whole = RawGguf::base().bytes();
  // Inside the expert stacks: a reader that only maps would meet it long after the load.
  for (const std::size_t cut : {whole.size() - 5000, whole.size() - 2000, whole.size() - 1})
    expect_says(open_error(whole.substr(0, cut)), ErrorCode::kCorrupt,
                {"_exps.weight (offset", "past the end of the file at byte " + std::to_string(cut), "truncated"});
}

TEST_F(GgufBugClass, C04_BytesThatOverflow_AreRefusedForEveryType) {
  for (const std::uint32_t type : {raw::kTypeF32, raw::kTypeF16, raw::kTypeQ8_0, raw::kTypeQ4_0, raw::kTypeQ4_K}) {
    RawGguf raw = RawGguf::base();  // so large that bytes, or ggml's sum of padded sizes, come out as a few megabytes
    raw.tensor(kDown).dims = {std::uint64_t{1} << 32, (std::uint64_t{1} << 31) - 1};
    raw.tensor(kDown).type = type;
    expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "(offset"});
  }
}

TEST_F(GgufBugClass, C05_OffsetAndSizeBeyondTheFile_AreRefusedWithoutAddingThem) {
  const std::uint64_t size = RawGguf::base().tensor(kDown).data.size();
  // The sum with the size wraps to inside the file for the second and third.
  for (const std::uint64_t offset :
       {std::uint64_t{1} << 40, ~std::uint64_t{0} - 31, (~std::uint64_t{0} - size) & ~std::uint64_t{31}}) {
    RawGguf raw = RawGguf::base();
    raw.tensor(kDown).offset = offset;
    expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "(offset", "past the end of the file"});
  }
}

TEST_F(GgufBugClass, C07_RankTooLarge_IsRefusedAndNothingBehindItIsRead) {
  RawGguf raw = RawGguf::base();  // with dimensions for it: the rest of the table stays in step, only the rank is wrong
  raw.tensor(kDown).dims = {32, 32, 4, 1, 1, 1, 1, 1};
  expect_says(open_error(raw), ErrorCode::kCorrupt, {kDown, "8 dimensions; 1 to 4 are allowed"});
}

TEST_F(GgufBugClass, C08_OddAlignmentOrOneThatWraps_IsRefusedByItsKey) {
  for (const std::uint32_t alignment : {1u, 3u, 12u, 0xffffffffu, 0xffffffe0u}) {
    RawGguf raw = RawGguf::base();
    raw.set("general.alignment", raw::kU32, number(alignment));
    expect_says(open_error(raw), ErrorCode::kCorrupt, {"general.alignment (offset", std::to_string(alignment)});
  }
}

TEST_F(GgufBugClass, C09_UnknownTensorType_IsNamedAndSaysWhoseItIs) {
  for (const auto& [type, says] : {std::pair<std::uint32_t, const char*>{139, "private to ik_llama.cpp"},
                                   {156, "private to ik_llama.cpp"},
                                   {4, "Q4_2"},
                                   {99, "private to ik_llama.cpp"},
                                   {200, "type 200 is unknown"}}) {
    RawGguf raw = RawGguf::base();
    raw.tensor(kDown).type = type;
    expect_says(open_error(raw), ErrorCode::kUnsupported, {kDown, "(offset", says});
  }
  // A type of the format without a kernel here opens, can be inspected, and is refused by name as a model.
  RawGguf raw = RawGguf::base();
  RawTensor& down = raw.tensor(kDown);
  down.type = 39;
  down.data.resize(down.dims[0] / 32 * 17 * down.dims[1] * down.dims[2]);
  expect_says(model_error(raw), ErrorCode::kUnsupported, {kDown, "(offset", "MXFP4"});
}

TEST_F(GgufBugClass, C22_UnknownValueType_IsRefusedNotSkipped) {
  for (const std::uint32_t type : {13u, 42u, 0xffffffffu}) {
    RawGguf raw = RawGguf::base();
    raw.keys.insert(raw.keys.begin() + 2, {"test.future", type, number(std::uint64_t{0})});
    expect_says(open_error(raw), ErrorCode::kCorrupt,
                {"test.future (offset", "value type is " + std::to_string(type), "0 to 12 exist"});
  }
}

TEST_F(GgufBugClass, C24_BigEndianFile_IsNamedAsSuch) {
  for (const std::uint32_t version : {2u, 3u}) {
    RawGguf raw = RawGguf::base();
    raw.version = __builtin_bswap32(version);
    expect_says(open_error(raw), ErrorCode::kUnsupported, {"version (offset 4)", "a big-endian file"});
  }
}

}  // namespace container_test
}  // namespace terrace::test
