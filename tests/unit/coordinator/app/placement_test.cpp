#include "coordinator/app/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/arch/architectures.h"
#include "coordinator/legs/file_slabs.h"
#include "tests/test_data.h"
#include "tests/unit/kernels/card/fake_card.h"

namespace terrace::app {
namespace placement_test {

using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A tiny model all on the host, and a card that took 24 GiB.
struct HostAndCard {
  explicit HostAndCard(bool integrated) : file(gguf::File::open(test::data_dir() / "tiny" / "tiny-q8_0.gguf").value()) {
    auto card = std::make_unique<test::FakeCard>(4096);
    card->change_facts().budget_bytes = 24 * kGiB;
    card->change_facts().integrated = integrated;
    cards.cards.push_back(std::move(card));
  }
  Result<planner::HostInput> host(std::optional<std::uint64_t> ram) {
    const manifest::ModelExperts experts = manifest::find_experts(file).value();
    const auto n_layers = static_cast<std::uint32_t>(experts.layers.size());
    const legs::OwnerTable all(1, {"host"}, n_layers, experts.n_experts,
                               std::vector<std::uint16_t>(std::size_t{n_layers} * experts.n_experts));
    const Placement placement{
        .experts = experts,
        .trunk = {},
        .info = arch::describe(file, {}).value(),
        .kernels = legs::select_layer_kernels(experts, {}, {}, kernels::Activations::kQuantised).value(),
        .nodes = {},
        .credentials = {},
        .cards = std::move(cards),
        .card_dense_bytes = 0,
        .off_card = {},
        .share = all,
        .owners = all,
        .controls = {},
        .memory = {},
        .heirs = {},
        .stated = {}};
    ModelOptions options;
    if (ram) options.ram = Bytes{*ram};
    return host_input(file, options, placement, 1);
  }
  gguf::File file;
  kernels::OpenedCards cards;
};

TEST(HostInput, RamIsForBothWhereTheCardsMemoryIsTheHosts) {
  EXPECT_EQ(HostAndCard(false).host(64 * kGiB).value().ram, 64 * kGiB);
  EXPECT_EQ(HostAndCard(true).host(64 * kGiB).value().ram, 40 * kGiB);
  EXPECT_FALSE(HostAndCard(true).host({}).value().ram) << "what is available no longer counts what the card took";
  const auto refused = HostAndCard(true).host(16 * kGiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().text(), HasSubstr("--ram 16G"));
}

}  // namespace placement_test
}  // namespace terrace::app
