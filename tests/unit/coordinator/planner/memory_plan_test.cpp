// Who is told what when memory is short; nodes answer as the tests say.
#include "coordinator/planner/memory_plan.h"
#include "common/wire/versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/legs/node_session.h"
#include "coordinator/planner/host_memory.h"
#include "coordinator/planner/share.h"

namespace terrace::planner {
namespace memory_plan_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint32_t kLayers = 4, kExperts = 8;
constexpr std::uint64_t kFixed = 3 * kMiB;  // of a session, without experts

// Takes what is asked for and kFixed.
class StatedNode final : public legs::NodeControl {
 public:
  StatedNode(std::string address, std::uint64_t budget, std::uint64_t free, std::uint64_t available)
      : address_(std::move(address)), budget_(budget), free_(free), available_(available) {}
  const std::string& address() const override { return address_; }
  Result<legs::NodeDescription> describe() override {
    legs::NodeDescription node;
    node.protocol_min = node.protocol_max = wire::kProtocolMax;
    node.numerics_version = numerics_version;
    return node;
  }
  Result<legs::NodeEstimate> estimate(const manifest::Manifest&, const wire::BatchLimits& limits, std::uint64_t,
                                      std::uint64_t slab_bytes) override {
    max_rows = limits.max_rows;
    return legs::NodeEstimate{.slabs = slab_bytes,
                              .staging = 2 * kMiB,
                              .scratch = kMiB,
                              .total = slab_bytes + kFixed,
                              .budget = budget_,
                              .free = free_,
                              .available = available_};
  }
  Result<legs::NodeStatus> status() override { return unused(); }
  Result<legs::OpenedSession> open_session(const legs::SessionRequest&) override { return unused(); }
  Result<std::uint32_t> reserve(std::uint64_t, const legs::ReservationBytes&) override { return unused(); }
  Status heartbeat(std::uint64_t) override { return unused(); }
  Status assign(std::uint64_t, std::uint64_t, std::span<const legs::LayerExperts>,
                FunctionRef<Status(const legs::AssignProgress&)>) override {
    return unused();
  }
  Status forget(std::uint64_t, std::uint64_t) override { return unused(); }
  Status close_session(std::uint64_t) override { return unused(); }

  std::uint32_t numerics_version = wire::kNumericsVersion;
  std::uint32_t max_rows = 0;

 private:
  static Error unused() { return Error(ErrorCode::kInternal, "a plan opens nothing"); }
  std::string address_;
  std::uint64_t budget_, free_, available_;
};

// Experts of 768 KiB.
manifest::Manifest model() {
  manifest::Manifest m;
  m.architecture = "qwen3moe";
  m.d_model = 1024;
  m.n_experts = kExperts;
  m.top_k = 2;
  manifest::LayerShape layer;
  layer.types = {TensorType::kF32, TensorType::kF32, TensorType::kF32};
  layer.d_model = 1024;
  layer.ff = 64;
  layer.n_experts = kExperts;
  m.layers.assign(kLayers, layer);
  return m;
}

class MemoryPlanTest : public ::testing::Test {
 protected:
  StatedNode& add_node(std::uint64_t budget, std::uint64_t free, std::uint64_t available) {
    auto node =
        std::make_unique<StatedNode>("box" + std::to_string(nodes_.size() + 1) + ":9000", budget, free, available);
    StatedNode& added = *node;
    names_.push_back(node->address());
    nodes_.push_back(std::move(node));
    return added;
  }
  Result<MemoryPlan> plan(const std::string& share) {
    ShareInput input;
    input.nodes = names_;
    input.n_layers = kLayers;
    input.n_experts = kExperts;
    const legs::OwnerTable owners = share.empty() ? even_share(input) : share_from_flag(share, input).value();
    arch::ModelInfo info;
    info.context = 4096;
    info.kv_bytes_per_position = 1024;
    return plan_memory(
        {.model = model_, .info = info, .owners = owners, .max_rows = 64, .range_rows = 64, .host = host_}, nodes_);
  }

  const manifest::Manifest model_ = model();
  std::vector<std::unique_ptr<legs::NodeControl>> nodes_;
  std::vector<std::string> names_;
  HostInput host_{
      .dense_bytes = 10 * kMiB, .cache_bytes = 0, .scratch_bytes = kMiB, .ram = {}, .available = 1000 * kMiB};
};

TEST_F(MemoryPlanTest, SlabsHave768KiB) { EXPECT_EQ(model_.slab_bytes(0), 768 * 1024u); }

TEST_F(MemoryPlanTest, WhatFits_IsCounted) {
  StatedNode& node = add_node(100 * kMiB, 90 * kMiB, 1000 * kMiB);
  const MemoryPlan p = plan("host=0-5,box1:9000=6-7").value();
  EXPECT_TRUE(p.fits());
  EXPECT_TRUE(p.status().ok());
  ASSERT_EQ(p.legs.size(), 2u);
  const std::uint64_t slab = model_.slab_bytes(0);
  EXPECT_EQ(p.legs[0].experts, "0-5");
  EXPECT_EQ(p.legs[0].slabs, 6 * kLayers);
  EXPECT_EQ(p.legs[0].slab_bytes, 6 * kLayers * slab);
  EXPECT_EQ(p.legs[0].needs, p.legs[0].slab_bytes + 11 * kMiB + p.legs[0].staging_bytes);
  EXPECT_GT(p.legs[0].staging_bytes, 0u) << "windows for the node's replies";
  EXPECT_EQ(p.legs[1].needs, 2 * kLayers * slab + kFixed);
  EXPECT_EQ(p.legs[1].offers, 90 * kMiB);
  EXPECT_EQ(node.max_rows, 64u);
  ASSERT_TRUE(p.room_for_positions.has_value());
  EXPECT_EQ(*p.room_for_positions, 4096u) << "no more than the model's";
}

// Eight experts of four layers of 768 KiB: 24 MiB and the fixed 3; each expert 3 MiB.
TEST_F(MemoryPlanTest, ShortBudget_TheSentenceHasTheNumbersAndAWayOut) {
  add_node(20 * kMiB, 16 * kMiB, 1000 * kMiB);
  const MemoryPlan p = plan("box1:9000=0-7").value();
  ASSERT_FALSE(p.fits());
  EXPECT_EQ(p.status().error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(
      p.legs[1].refusal,
      "box1:9000: needs 27M for experts 0-7 (slabs 24M, windows 2M, scratch 1M) and offers 16M (of a budget of 20M); "
      "short by 11M; give it at most experts 0-3, or start it with --ram 31M");
  EXPECT_TRUE(plan("host=4-7,box1:9000=0-3").value().fits()) << "the advice is true";
  EXPECT_FALSE(plan("host=5-7,box1:9000=0-4").value().fits()) << "and cannot be bettered";
}

TEST_F(MemoryPlanTest, MachineWithLessThanTheBudget_IsToldApart) {
  add_node(100 * kMiB, 100 * kMiB, 10 * kMiB);
  const MemoryPlan p = plan("box1:9000=0-7").value();
  EXPECT_THAT(p.legs[1].refusal, HasSubstr("offers 10M (its machine has no more left)"));
  EXPECT_THAT(p.legs[1].refusal, HasSubstr("end other programs there"));
}

TEST_F(MemoryPlanTest, NodeTooSmallForASession_IsToBeLeftOut) {
  add_node(2 * kMiB, 2 * kMiB, 1000 * kMiB);
  EXPECT_THAT(plan("host=0-6,box1:9000=7").value().legs[1].refusal,
              HasSubstr("leave it out, for without experts it does not fit either"));
  EXPECT_THAT(plan("host=0-7").value().legs[1].refusal, HasSubstr("box1:9000: needs 3M for its session"));
  names_.clear();
  nodes_.clear();
  add_node(4 * kMiB, 4 * kMiB, 1000 * kMiB);
  EXPECT_THAT(plan("host=0-6,box1:9000=7").value().legs[1].refusal, HasSubstr("give it no experts"));
}

TEST_F(MemoryPlanTest, EveryLegThatIsShort_IsTold) {
  add_node(4 * kMiB, 4 * kMiB, 1000 * kMiB);
  add_node(100 * kMiB, 100 * kMiB, 1000 * kMiB);
  add_node(4 * kMiB, 4 * kMiB, 1000 * kMiB);
  const std::string text = plan("").value().status().error().text();
  EXPECT_THAT(text, HasSubstr("box1:9000: needs"));
  EXPECT_THAT(text, HasSubstr("\nbox3:9000: needs"));
  EXPECT_EQ(text.find("box2:9000"), std::string::npos);
}

TEST_F(MemoryPlanTest, Host_ItsFileItsCacheAndItsScratch) {
  host_.available = 40 * kMiB;
  const MemoryPlan fits = plan("").value();
  EXPECT_TRUE(fits.fits());
  EXPECT_EQ(*fits.room_for_positions, 4096u);
  host_.cache_bytes = 10 * kMiB;
  const MemoryPlan p = plan("").value();
  EXPECT_EQ(
      p.legs[0].refusal,
      "host: needs 45M (experts 0-7: 24M, dense weights 10M, cache 10M, windows 0B, scratch 1M) and has 40M; short by "
      "5M; give it at most experts 0-5, lower --ctx-size or --batch, or say --ram 45M to read weights that do not fit "
      "from the file again and again");
  EXPECT_FALSE(p.room_for_positions.has_value());
  host_.ram = 45 * kMiB;
  EXPECT_TRUE(plan("").value().fits()) << "said so: pages of the file may be read again";
  host_.cache_bytes = 60 * kMiB;
  host_.ram = 1000 * kMiB;
  EXPECT_THAT(
      plan("").value().legs[0].refusal,
      HasSubstr("of which cache, windows and scratch, 61M, are more than the 40M that are available; short by 21M"))
      << "what is taken from the system cannot be read again";
  host_.ram = 20 * kMiB;
  EXPECT_THAT(plan("").value().legs[0].refusal, HasSubstr("more than the 20M of --ram; short by 41M"));
}

TEST_F(MemoryPlanTest, RoomForPositions_IsWhatIsLeft) {
  host_.available = 35 * kMiB + 100 * 1024;
  EXPECT_EQ(*plan("").value().room_for_positions, 96u) << "whole blocks of 32 positions of 1 KiB";
}

TEST_F(MemoryPlanTest, NodeOfAnotherVersion_IsRefusedByName) {
  add_node(kMiB, kMiB, kMiB).numerics_version = 7;
  const auto refused = plan("");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  EXPECT_THAT(refused.error().text(), HasSubstr("computes by numerics version 7"));
}

TEST(IdsText, IsWhatShareReads) {
  const auto text = [](std::vector<std::uint16_t> ids) { return ids_text(ids); };
  EXPECT_EQ(text({0, 1, 2, 3, 8, 12, 13}), "0-3,8,12-13");
  EXPECT_EQ(text({5}), "5");
  EXPECT_EQ(text({}), "");
}

}  // namespace memory_plan_test
}  // namespace terrace::planner
