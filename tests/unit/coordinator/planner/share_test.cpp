#include "coordinator/planner/share.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace terrace::planner {
namespace share_test {

const std::vector<std::string> kNodes = {"box1:9000", "box2:9000"};

ShareInput input(std::uint32_t n_experts = 16, std::uint32_t n_layers = 2) {
  return {.nodes = kNodes, .n_layers = n_layers, .n_experts = n_experts};
}

std::vector<std::uint16_t> owners(const legs::OwnerTable& table, std::uint32_t layer) {
  const auto row = table.owners(layer);
  return {row.begin(), row.end()};
}

TEST(Share, RangesPerLeg_OwnEveryLayer) {
  const auto table = parse_share("host=0-7,box1:9000=8-11,box2:9000=12-15", input());
  ASSERT_TRUE(table.ok()) << table.error().text();
  const std::vector<std::uint16_t> expected = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  EXPECT_EQ(owners(*table, 0), expected);
  EXPECT_EQ(owners(*table, 1), expected);
  EXPECT_EQ(table->n_slabs(0), 16u);
  EXPECT_EQ(table->n_slabs(1), 8u);
  EXPECT_EQ(table->experts(2, 1), (std::vector<std::uint16_t>{12, 13, 14, 15}));
}

TEST(Share, ItemWithoutEquals_BelongsToTheLegBefore) {
  const auto table = parse_share("host=0-3,8,12-15,box1:9000=4-7,9-11", input());
  ASSERT_TRUE(table.ok()) << table.error().text();
  EXPECT_EQ(owners(*table, 0), (std::vector<std::uint16_t>{0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0}));
}

TEST(Share, WithoutHost_HostOwnsNone) {
  const auto table = parse_share("box1:9000=0-15", input());
  ASSERT_TRUE(table.ok()) << table.error().text();
  EXPECT_EQ(table->n_slabs(0), 0u);
}

struct BadShare {
  const char* name;
  const char* spec;
  const char* says;
};
class ShareRefused : public testing::TestWithParam<BadShare> {};

TEST_P(ShareRefused, SentenceNamesTheFault) {
  const auto table = parse_share(GetParam().spec, input());
  ASSERT_FALSE(table.ok()) << GetParam().spec;
  EXPECT_EQ(table.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(table.error().text().find(GetParam().says), std::string::npos) << table.error().text();
}

INSTANTIATE_TEST_SUITE_P(Specs, ShareRefused,
                         testing::Values(BadShare{"ExpertOfNoLeg", "host=0-14", "expert 15 is given to no leg"},
                                         BadShare{"ExpertOfTwoLegs", "host=0-15,box1:9000=15",
                                                  "expert 15 is given twice, to host and to box1:9000"},
                                         BadShare{"ExpertOutOfRange", "host=0-16", "expert 16 is out of range"},
                                         BadShare{"IdOf33Bits", "host=0-4294967296", "neither an expert id"},
                                         BadShare{"NegativeId", "host=-1", "neither an expert id"},
                                         BadShare{"RangeBackwards", "host=7-0,8-15", "runs backwards"},
                                         BadShare{"UnknownLeg", "box3:9000=0-15",
                                                  "\"box3:9000\" is no leg of this run"},
                                         BadShare{"NoLeg", "0-15", "stands before any leg"},
                                         BadShare{"LegWithoutExperts", "host=", "neither an expert id"},
                                         BadShare{"EmptyItem", "host=0-15,,", "neither an expert id"},
                                         BadShare{"CommaAtTheEnd", "host=0-15,", "neither an expert id"},
                                         BadShare{"Empty", "", "given to no leg"}),
                         [](const auto& tested) { return tested.param.name; });

class ShareFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("share_" + std::to_string(::getpid()) + "_" + std::to_string(n_++) + ".json");
    std::ofstream(path) << text;
    written_.push_back(path);
    return path.string();
  }
  void TearDown() override {
    for (const auto& path : written_) std::filesystem::remove(path);
  }
  int n_ = 0;
  std::vector<std::filesystem::path> written_;
};

TEST_F(ShareFile, OneEntry_HoldsForAllLayers) {
  const auto table = share_from_flag(write(R"({"layers":[{"host":"0-7,9","box1:9000":"8,10-15"}]})"), input());
  ASSERT_TRUE(table.ok()) << table.error().text();
  EXPECT_EQ(owners(*table, 0), owners(*table, 1));
  EXPECT_EQ(table->n_slabs(1), 14u);
}

TEST_F(ShareFile, EntryPerLayer_DiffersByLayer) {
  const auto table = share_from_flag(write(R"({"layers":[{"host":"0-15"},{"box2:9000":"0-15"}]})"), input());
  ASSERT_TRUE(table.ok()) << table.error().text();
  EXPECT_EQ(table->experts(0, 0).size(), 16u);
  EXPECT_EQ(table->experts(2, 1).size(), 16u);
}

TEST_F(ShareFile, BadFiles_NameFileAndPlace) {
  const std::string deep = "{\"layers\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  const struct {
    const char* text;
    const char* says;
  } cases[] = {{"{", "share: no JSON: byte 2"},
               {"[]", "no JSON object"},
               {R"({"layers":[]})", "has 0 entries"},
               {R"({"layers":[{"host":"0-15"},{"host":"0-15"},{"host":"0-15"}]})", "needs 1, or 2"},
               {R"({"layers":[{"host":"0-15"},{"host":"0-14"}]})", "layers[1]: share: expert 15 is given to no leg"},
               {R"({"layers":[{"host":15}]})", "no string"},
               {R"({"layers":[7]})", "no object"},
               {R"({"layers":[{"host":"0-15,"}]})", "\"\" is neither an expert id"},
               {R"({"layers":[{"host":"0-15"}],"layer":[]})", "unknown key \"layer\""},
               {R"({"layers":[{"host":"0-7","host":"8-15"}]})", "key \"host\" stands twice"},
               {R"({"layers":[{"\u001b[31m":"0-15"}]})", "\"\\x1b[31m\" is no leg of this run"},
               {deep.c_str(), "nested deeper than 100 levels"}};
  for (const auto& c : cases) {
    const std::string path = write(c.text);
    const auto table = share_from_flag(path, input());
    ASSERT_FALSE(table.ok()) << c.text;
    EXPECT_NE(table.error().text().find(c.says), std::string::npos) << table.error().text();
    EXPECT_NE(table.error().text().find(path), std::string::npos) << table.error().text();
  }
  EXPECT_EQ(share_from_flag("/nonexistent/share.json", input()).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(share_from_flag("", input()).error().code(), ErrorCode::kNotFound);
  EXPECT_NE(share_from_flag("/tmp", input()).error().text().find("/tmp: is a directory"), std::string::npos);
}

TEST_F(ShareFile, TextWithoutALeg_NamesAFile) {
  const std::string json = write(R"({"layers":[{"host":"0-15"}]})");
  const std::string other = json + ".txt";
  std::filesystem::copy_file(json, other);
  written_.push_back(other);
  EXPECT_TRUE(share_from_flag(other, input()).ok());
}

TEST(Share, EvenShare_CutsByIdOrderHostFirst) {
  const legs::OwnerTable table = even_share(input(8, 1));
  EXPECT_EQ(owners(table, 0), (std::vector<std::uint16_t>{0, 0, 0, 1, 1, 1, 2, 2}));
}

TEST(Share, EvenShareWithoutNodes_HostOwnsAll) {
  const legs::OwnerTable table = even_share({.nodes = {}, .n_layers = 3, .n_experts = 8});
  EXPECT_EQ(table.n_slabs(0), 24u);
}

}  // namespace share_test
}  // namespace terrace::planner
