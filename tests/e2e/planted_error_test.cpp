// The placement gate is shown to fail on the defects that it guards: a kernel that is wrong in one bit, a pair that is
// computed by a leg that does not own its expert, a node whose kernels differ from ours.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>

#include "common/transport/tcp/tcp.h"
#include "coordinator/legs/grpc_node_control.h"
#include "kernels/registry/registry.h"
#include "tests/contract/sealed_transport.h"
#include "tests/e2e/support/gate_parts.h"
#include "tests/e2e/support/node_process.h"

namespace terrace {
namespace planted_error_test {

using test::GateCoordinator;
using test::GateModel;
using test::GateRun;
using test::must;

constexpr std::uint64_t kTokens = 12;
constexpr std::uint32_t kWrongLayer = 3;

const std::vector<std::int32_t> kPrompt = {1611, 825, 261, 509, 14, 408, 295, 261, 438};  // story_start of the vectors

// The bit of an f32 output that the wrong kernel flips: 2^-15 of the output's value. The lowest bits lie below the
// unit of the sums (docs/numerics.md 5), so that an error in them is none by the time that rows are added.
constexpr std::uint32_t kWrongBit = 8;

// The type's kernel, but one bit of the first output of each call is the other one.
void one_bit_wrong(const std::byte* w, std::size_t w_row_bytes, std::size_t n_weight_rows, const std::byte* const* x,
                   std::size_t n_x, std::size_t cols, float* y, std::size_t y_stride) {
  const auto right =
      must(kernels::select_weight_kernels(TensorType::kQ4_K, kernels::detect_cpu_features(), std::nullopt));
  right.dot_rows(w, w_row_bytes, n_weight_rows, x, n_x, cols, y, y_stride);
  y[0] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(y[0]) ^ (1u << kWrongBit));
}

// Our kernels with a wrong one in one layer.
std::vector<kernels::ExpertKernels> planted(const GateModel& model) {
  std::vector<kernels::ExpertKernels> kernels = model.kernels;
  kernels::WeightKernels& down = kernels[kWrongLayer].down;
  EXPECT_EQ(down.type, TensorType::kQ4_K);
  down.dot_rows = one_bit_wrong;
  return kernels;
}

GateRun host_run(const GateModel& model, std::vector<kernels::ExpertKernels> kernels) {
  return GateCoordinator(model, model.share({}, "host=0-31"), model.slabs.lookup(), std::move(kernels))
      .run(kPrompt, 512, kTokens);
}

TEST(PlacementGateShownToFail, PartsOfTheGate_GiveTheSameAsTheEngine) {
  const GateModel model;
  EXPECT_EQ(test::difference(test::gate_run(test::gate_options(), kPrompt, kTokens), host_run(model, model.kernels)),
            std::nullopt);
}

TEST(PlacementGateShownToFail, PlantedOneBitKernelError_TurnsItRed) {
  const GateModel model;
  const auto found = test::difference(host_run(model, model.kernels), host_run(model, planted(model)));
  ASSERT_TRUE(found) << "one bit of one output a call is wrong, and the gate saw nothing";
  EXPECT_NE(found->find("step 0: logits"), std::string::npos) << *found;
}

TEST(PlacementGateShownToFail, NodeWithOtherKernels_IsRefusedByTheCanary) {
  const GateModel model;
  test::NodeProcess node;
  const std::vector<kernels::ExpertKernels> wrong = planted(model);
  const legs::SessionModel session_model = model.session_model(wrong);
  transport::TcpTransport tcp;
  auto proving = transport::test::proving(tcp);
  const auto session =
      must(legs::NodeSession::open(must(legs::make_grpc_node_control(node.address(), {})), proving, session_model, {}));
  // The canary takes the first expert of each combination of types: here the layer with the wrong kernel alone.
  const legs::OwnerTable owners = [&] {
    std::vector<std::uint16_t> owner(std::size_t{model.manifest.n_layers()} * model.manifest.n_experts, 0);
    for (std::uint32_t expert = 7; expert < 12; ++expert) owner[kWrongLayer * model.manifest.n_experts + expert] = 1;
    return legs::OwnerTable(1, {"host", node.address()}, model.manifest.n_layers(), model.manifest.n_experts, owner);
  }();
  const Status taken = session->take_share(owners, 1, [](const legs::ShareProgress&) {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(session->wrong());
  EXPECT_TRUE(taken.error().text().starts_with(node.address() + ": computes expert 7 of block 3"))
      << taken.error().text();
}

// The canary comes with each share that a node takes, not the first alone.
TEST(PlacementGateShownToFail, FurtherShareThatTheNodeComputesWrong_IsRefusedByItsCanary) {
  const GateModel model;
  test::NodeProcess node;
  std::vector<kernels::ExpertKernels> ours = model.kernels;
  const legs::SessionModel session_model = model.session_model(ours);
  transport::TcpTransport tcp;
  auto proving = transport::test::proving(tcp);
  const auto session =
      must(legs::NodeSession::open(must(legs::make_grpc_node_control(node.address(), {})), proving, session_model, {}));
  const auto share = [&](std::uint64_t epoch) {
    std::vector<std::uint16_t> owner(std::size_t{model.manifest.n_layers()} * model.manifest.n_experts, 0);
    owner[kWrongLayer * model.manifest.n_experts + 7] = 1;
    return legs::OwnerTable(epoch, {"host", node.address()}, model.manifest.n_layers(), model.manifest.n_experts,
                            owner);
  };
  const auto quiet = [](const legs::ShareProgress&) {};
  const Status first = session->take_share(share(1), 1, quiet);
  ASSERT_TRUE(first.ok()) << first.error().text();
  ours = planted(model);  // from here on one of the two has a wrong kernel
  const Status second = session->take_share(share(2), 1, quiet);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(second.error().text().starts_with(node.address() + ": computes expert 7 of block 3"))
      << second.error().text();
}

// ---- the host leg and what it does not own

constexpr const char* kOthersShare = "host=0-3,9,20-31,box1:9000=4-8,10-19";

TEST(HostLegInTheGate, LookupIsAskedForOwnedExpertsOnly) {
  const GateModel model;
  const legs::OwnerTable owners = model.share({"box1:9000"}, kOthersShare);
  std::multiset<std::pair<std::uint32_t, std::uint16_t>> asked, owned;
  const legs::HostLeg leg(
      owners,
      [&](std::uint32_t layer, std::uint16_t expert) {
        asked.emplace(layer, expert);
        return model.slabs.view(layer, expert);
      },
      model.kernels, model.serial, model.ops);
  for (std::uint32_t layer = 0; layer < owners.n_layers(); ++layer)
    for (const std::uint16_t expert : owners.experts(0, layer)) owned.emplace(layer, expert);
  EXPECT_EQ(asked, owned);
  EXPECT_EQ(leg.experts(), owned.size());
}

// One row for one expert, straight to the host leg.
void compute_on_host(const GateModel& model, std::uint16_t expert) {
  const legs::OwnerTable owners = model.share({"box1:9000"}, kOthersShare);
  legs::HostLeg leg(owners, model.slabs.lookup(), model.kernels, model.serial, model.ops);
  const kernels::ExpertKernels& kernels = model.kernels[0];
  const std::size_t d_model = kernels.shape.d_model;
  const std::vector<float> row(d_model, 0.5f);
  std::vector<std::byte> quantised(row_bytes(kernels.gate_class(), d_model));
  model.ops.quantize_row(kernels.gate_class(), row.data(), d_model, quantised.data());
  const kernels::Pair pair{0, expert, 1.0f};
  const legs::RowRange range{0, 1};
  legs::LegBatch batch;
  batch.epoch = 1;
  batch.gate_rows = {kernels.gate_class(), quantised.data(), quantised.size()};
  batch.up_rows = batch.gate_rows;
  batch.n_rows = 1;
  batch.pairs = {&pair, 1};
  batch.ranges = {&range, 1};
  std::vector<std::int64_t> sums(d_model);
  std::uint8_t failed = 0;
  const legs::Ticket ticket = must(leg.submit(batch));
  const Status computed = leg.collect(ticket, {sums.data(), d_model, model.experts.shift}, {&failed, 1});
  ASSERT_TRUE(computed.ok()) << computed.error().text();
  EXPECT_NE(sums, std::vector<std::int64_t>(d_model));
}

TEST(HostLegInTheGate, ExpertItOwns_IsComputed) { compute_on_host(GateModel(), 9); }

TEST(HostLegInTheGateDeathTest, ExpertOfAnotherLeg_Aborts) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(compute_on_host(GateModel(), 10), "does not hold");
}

}  // namespace planted_error_test
}  // namespace terrace
