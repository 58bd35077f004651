#include "coordinator/planner/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/planner/share.h"
#include "tests/test_data.h"
#include "tests/unit/common/temp_dir.h"

namespace terrace::planner {
namespace plan_file_test {

using nlohmann::json;
using terrace::test::read_file;
using terrace::test::TempDir;
using terrace::test::write_file;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kLayers = 6, kExperts = 32;  // the demo model's

class PlanFileTest : public ::testing::Test {
 protected:
  legs::OwnerTable owners(const std::string& share) const {
    return share_from_flag(share, {.nodes = nodes_, .n_layers = kLayers, .n_experts = kExperts}).value();
  }
  void write(const std::string& share) const {
    ASSERT_TRUE(write_plan_file(path_, file_, owners(share), MemoryPlan(), nullptr).ok());
  }
  json content() const { return json::parse(read_file(path_)); }
  // What is said of the file after `change`.
  std::string refused(const std::function<void(json&)>& change) const {
    write("host=0-15,box1:9000=16-31");
    json plan = content();
    change(plan);
    write_file(path_, plan.dump());
    const auto read = read_plan_file(path_);
    if (!read.ok()) return read.error().text();
    const auto table = owners_of(*read, file_, kLayers, kExperts);
    return table.ok() ? "it was accepted" : table.error().text();
  }

  const TempDir dir_;
  const std::filesystem::path path_ = dir_ / "plan.json";
  const gguf::File file_ = gguf::File::open(terrace::test::demo_model()).value();
  const std::vector<std::string> nodes_ = {"box1:9000", "box2:9000"};
};

TEST_F(PlanFileTest, WhatIsWritten_ComesBack) {
  for (const char* share : {"host=0-15,box1:9000=16-23,box2:9000=24-31", "box2:9000=0-31"}) {
    write(share);
    const PlanFile plan = read_plan_file(path_).value();
    EXPECT_EQ(plan.nodes, nodes_);
    EXPECT_EQ(plan.model, terrace::test::demo_model().filename().string());
    const legs::OwnerTable read = owners_of(plan, file_, kLayers, kExperts).value(), expected = owners(share);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer)
      for (std::size_t leg = 0; leg < 3; ++leg) EXPECT_EQ(read.experts(leg, layer), expected.experts(leg, layer));
    EXPECT_EQ(content()["layers"].size(), 1u) << "layers that are alike stand once";
  }
}

TEST_F(PlanFileTest, LayersThatDiffer_StandOneByOne) {
  json layers = json::array();
  for (std::uint32_t layer = 0; layer < kLayers; ++layer)
    layers.push_back(layer == 2 ? json{{"host", "0-31"}} : json{{"box1:9000", "0-31"}});
  write_file(dir_ / "share.json", json{{"layers", layers}}.dump());
  write((dir_ / "share.json").string());
  EXPECT_EQ(content()["layers"], layers);
}

TEST_F(PlanFileTest, AnotherModelsPlan_IsRefused_BothNamed) {
  const std::string text = refused([](json& plan) {
    plan["model"]["header_sha256"] = std::string(64, '0');
    plan["model"]["file"] = "other.gguf";
  });
  EXPECT_THAT(text, HasSubstr("plan.json: made for another model file (other.gguf; the headers differ) than "));
  EXPECT_THAT(text, HasSubstr("demo-story"));
}

TEST_F(PlanFileTest, SharesThatDoNotCover_AreRefused) {
  EXPECT_THAT(refused([](json& plan) { plan["layers"][0]["host"] = "0-14"; }),
              HasSubstr("expert 15 is given to no leg"));
  EXPECT_THAT(refused([](json& plan) { plan["layers"][0]["host"] = "0-16"; }), HasSubstr("expert 16 is given twice"));
  EXPECT_THAT(refused([](json& plan) { plan["layers"][0]["host"] = "0-32"; }), HasSubstr("out of range"));
  EXPECT_THAT(refused([](json& plan) { plan["nodes"] = json::array({"box2:9000"}); }),
              HasSubstr("\"box1:9000\" is no leg of this run"));
  EXPECT_THAT(refused([](json& plan) { plan["layers"].push_back(plan["layers"][0]); }), HasSubstr("has 2 entries"));
}

// Whatever stands in the file: an error that names it, or a plan.
TEST_F(PlanFileTest, AnythingElse_IsNoPlanFile) {
  for (const char* bytes : {"", "[]", "{}", "null", "{\"terrace_plan\": \"1\"}", "{\"terrace_plan\": 1}", "\xff\xfe"}) {
    write_file(path_, bytes);
    const auto read = read_plan_file(path_);
    ASSERT_FALSE(read.ok()) << bytes;
    EXPECT_EQ(read.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(read.error().text(), HasSubstr("plan.json"));
  }
  EXPECT_EQ(read_plan_file(dir_ / "nowhere").error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(refused([](json& plan) { plan["terrace_plan"] = 2; }),
              HasSubstr("version 2 of the format; 1 can be read"));
  for (const char* key : {"model", "nodes", "layers"}) {
    for (const json& value : {json(), json(3), json("x"), json::array({1}), json::object({{"a", 1}})})
      EXPECT_NE(refused([&](json& plan) { plan[key] = value; }), "it was accepted") << key << " " << value;
    EXPECT_NE(refused([&](json& plan) { plan.erase(key); }), "it was accepted") << key;
  }
  EXPECT_THAT(refused([](json& plan) { plan["nodes"].push_back("host"); }), HasSubstr("node host"));
  EXPECT_THAT(refused([](json& plan) { plan["nodes"].push_back("box1:9000"); }),
              HasSubstr("node box1:9000 is given twice"));
}

TEST_F(PlanFileTest, EachLeg_IsOfTheKindThatItIs) {
  MemoryPlan memory;
  for (const legs::LegKind kind : {legs::LegKind::kHost, legs::LegKind::kNode, legs::LegKind::kCard}) {
    memory.legs.emplace_back().kind = kind;
    EXPECT_EQ(legs_json(memory).back()["kind"], legs::name(kind));
  }
}

// What was read is copied and looked through by recursion: a text nested a million deep would end the process.
TEST_F(PlanFileTest, NestedAMillionDeep_IsNoPlanFile) {
  write("host=0-15,box1:9000=16-31");
  const json plan = content();
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const char* key : {"model", "nodes", "layers", "prediction"}) {
    json changed = plan;
    changed[key] = "HERE";
    std::string text = changed.dump();
    write_file(path_, text.replace(text.find("\"HERE\""), 6, deep));
    const auto read = read_plan_file(path_);
    ASSERT_FALSE(read.ok()) << key;
    EXPECT_THAT(read.error().text(), HasSubstr("plan.json: no plan file: the JSON is nested deeper than 100 levels"));
  }
}

TEST_F(PlanFileTest, TextOfTheFile_ReachesNoTerminalRaw) {
  const std::string red = "\x1b[31m";
  const std::vector<std::string> said = {
      refused([&](json& plan) { plan["nodes"][0] = red; }),
      refused([&](json& plan) { plan["nodes"].push_back(red + ":9000"); }),
      refused([&](json& plan) { plan["layers"][0][red] = "0-15"; }),
      refused([&](json& plan) { plan["layers"][0]["host"] = red; }),
      refused([&](json& plan) { plan["layers"][0]["host"] = "0-1" + red; }),
      refused([&](json& plan) { plan["layers"][0][red] = 3; }),
      refused([&](json& plan) {
        plan["model"] = {{"file", red}, {"header_sha256", red}};
      }),
  };
  for (const std::string& text : said) {
    EXPECT_THAT(text, HasSubstr("\\x1b[31m"));
    EXPECT_THAT(text, Not(HasSubstr(red)));
  }
}

TEST_F(PlanFileTest, FileThatCannotBeRead_IsSaidSo) {
  const auto read = read_plan_file("/proc/self/mem");  // opens, and nothing is mapped at address 0
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), ErrorCode::kIo) << read.error().text();
}

}  // namespace plan_file_test
}  // namespace terrace::planner
