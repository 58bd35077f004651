// A node with a card: the hot part of a share lies there, and no answer shows it. The card is the tests' own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tier_node/service/data_server_testing.h"

namespace terrace::node {
namespace card_test {

using test::collect;
using test::error_of;
using test::kSeed;
using test::LaneClient;
using test::must;
using test::NodeParts;
using test::NodeSettings;
using test::TestBatch;
using test::TinyModel;
using ::testing::HasSubstr;

NodeSettings with_card(std::uint64_t vram, bool own_model = true) {
  NodeSettings settings;
  settings.vram = vram;
  settings.own_model = own_model;
  return settings;
}

// Slabs of `model` that an epoch has on the card.
std::size_t on_card(const TinyModel& model, const Epoch& epoch) {
  std::size_t n = 0;
  for (const ShareItem& item : model.everything()) n += epoch.on_card(item.layer, item.expert) ? 1 : 0;
  return n;
}

class CardNodeTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::uint64_t slab() const {
    const manifest::LayerShape& shape = model_.manifest.layers[0];
    return arena::SlabSizes{shape.gate_bytes(), shape.up_bytes(), shape.down_bytes(), {}}.stored_bytes();
  }
  const TinyModel model_{GetParam()};
};

TEST_P(CardNodeTest, AnyPartOnTheCard_SameSumsAndSlots) {
  const std::uint64_t vram[] = {slab() - arena::kPageBytes, slab(), 5 * slab(), 1000 * slab()};
  for (const std::uint64_t bytes : vram) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes of card memory, seed " << kSeed);
    NodeParts node(model_, with_card(bytes));
    node.serve();
    const SessionRef session = node.ready_session();
    const std::size_t cards = on_card(model_, *must(session->find_epoch(1)));
    LaneClient client = node.connect(*session, wire::Lane::kBulk);
    client.greet();
    for (const std::uint32_t layer : {0u, 1u}) {
      TestBatch batch(model_, layer, 23, 2, kSeed + layer);
      batch.ranges = {{0, 1}, {1, 9}, {10, 13}};
      const std::uint64_t sequence = client.send_batch(batch, 1, wire::Priority::kPrompt);
      EXPECT_EQ(collect(client, batch, *session, sequence), batch.expected(model_)) << "layer " << layer;
      const TestBatch slots(model_, layer, 5, 3, kSeed);
      client.send_batch(slots, 1, wire::Priority::kDecode, wire::ReplyForm::kSlots);
      const auto reply = client.receive_answer();
      ASSERT_TRUE(reply && reply->type() == wire::FrameType::kReply) << error_of(reply).text;
      const wire::ReplyView view = must(wire::read_reply(reply->frame, session->limits().batch));
      EXPECT_EQ(std::vector<float>(view.slots.begin(), view.slots.end()), slots.expected_slots(model_));
    }
    EXPECT_EQ(cards > 0, node.card().pairs > 0);
    EXPECT_EQ(node.card_store().usage().used > 0, cards > 0);
    if (bytes >= 1000 * slab()) {
      EXPECT_EQ(cards, model_.everything().size());
    }
  }
}

TEST_P(CardNodeTest, SlabsFromTheCoordinator_LieOnTheCardToo) {
  NodeParts node(model_, with_card(1000 * slab(), false));
  node.serve();
  const SessionRef session = node.open();
  must(node.sessions().reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 3}}));
  node.loader().start(session, assignment);
  LaneClient weights = node.connect(*session, wire::Lane::kWeights);
  weights.greet();
  while (assignment->wait(std::chrono::milliseconds(50)).wanted.empty()) {
  }
  weights.send_piece({0, 3, 0, model_.slab(0, 3).size()}, model_.slab(0, 3));
  while (!assignment->wait(std::chrono::milliseconds(50)).ready) {
  }
  EXPECT_TRUE(must(session->find_epoch(1))->on_card(0, 3));
  EXPECT_EQ(node.card().bytes_written, model_.slab(0, 3).size());
}

INSTANTIATE_TEST_SUITE_P(Models, CardNodeTest, ::testing::Values("tiny-q8_0.gguf", "tiny-mix.gguf"),
                         [](const auto& test) { return test.param[5] == 'q' ? "Q8_0" : "Mix"; });

class CardSessionTest : public test::DataServerTest {
 protected:
  std::uint64_t slab() const {
    const manifest::LayerShape& shape = model_.manifest.layers[0];
    return arena::SlabSizes{shape.gate_bytes(), shape.up_bytes(), shape.down_bytes(), {}}.stored_bytes();
  }
  EstimateRequest request(std::uint64_t slab_bytes) const {
    return {manifest::outline(model_.experts), {512, 512 * 8, 64, std::uint64_t{64} << 20}, slab_bytes};
  }
};

// What Estimate says is what Reserve then takes, of both memories.
TEST_F(CardSessionTest, TheCardsPartNeedsNoRam) {
  NodeParts none(model_), all(model_, with_card(1000 * slab())), part(model_, with_card(5 * slab()));
  const std::uint64_t slabs = model_.all_slab_bytes();
  const Estimate without = must(none.sessions().estimate(request(slabs)));
  const Estimate whole = must(all.sessions().estimate(request(slabs)));
  const Estimate some = must(part.sessions().estimate(request(slabs)));
  EXPECT_EQ(without.card, 0u);
  EXPECT_EQ(whole.terms.slabs, 0u);
  EXPECT_EQ(whole.card, arena::round_to_pages(without.terms.slabs));
  EXPECT_EQ(some.card, 5 * slab());
  EXPECT_EQ(some.terms.slabs, without.terms.slabs - 4 * slab());  // one slab's room: the last may not fit
  for (NodeParts* node : {&all, &part}) {
    const Estimate estimate = must(node->sessions().estimate(request(slabs)));
    const SessionRef session = node->ready_session();
    EXPECT_EQ(node->store().usage().reserved, estimate.total);
    EXPECT_EQ(node->card_store().usage().reserved, estimate.card);
    must(session->release());
    EXPECT_EQ(node->card_store().usage().reserved, 0u);
  }
}

TEST_F(CardSessionTest, WhatASessionHolds_StaysWhereItIs) {
  NodeParts node(model_, with_card(4 * slab()));
  const SessionRef session = node.open();
  must(node.sessions().reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  node.assign(session, 1, {{0, 4}, {0, 5}, {0, 6}, {1, 4}, {1, 5}, {1, 6}});
  EpochRef first = must(session->find_epoch(1));
  for (const ShareItem& item : {ShareItem{0, 4}, {0, 5}, {1, 4}, {1, 5}})
    EXPECT_TRUE(first->on_card(item.layer, item.expert));
  for (const ShareItem& item : {ShareItem{0, 6}, {1, 6}}) EXPECT_FALSE(first->on_card(item.layer, item.expert));
  // Nothing new: accepted at once, and nothing moves, though expert 6 would now be among the first.
  const AssignmentRef second = must(session->begin_assign(2, {{0, 5}, {0, 6}}));
  EXPECT_TRUE(second->finished());
  EXPECT_FALSE(second->brings_new_slabs());
  EXPECT_TRUE(must(session->find_epoch(2))->on_card(0, 5));
  EXPECT_FALSE(must(session->find_epoch(2))->on_card(0, 6));
  // What the first epoch alone held is free again for new ones.
  first.reset();
  must(session->forget(1));
  node.assign(session, 3, {{0, 0}, {0, 5}, {0, 6}});
  EXPECT_TRUE(must(session->find_epoch(3))->on_card(0, 0));
}

TEST_F(CardSessionTest, TypesThatTheCardCannotCompute_LieInRam) {
  NodeParts node(model_, with_card(1000 * slab()));
  node.card().no_kernel_for = TensorType::kQ8_0;
  const SessionRef session = node.ready_session();
  EXPECT_EQ(on_card(model_, *must(session->find_epoch(1))), 0u);
}

TEST_F(CardSessionTest, ACardThatFails_EndsTheBatchWithItsReason) {
  NodeParts node(model_, with_card(1000 * slab()));
  node.serve();
  const SessionRef session = node.ready_session();
  node.card().broken = true;
  LaneClient client = node.connect(*session, wire::Lane::kLatency);
  client.greet();
  client.send_batch(TestBatch(model_, 0, 3, 2, kSeed), 1);
  const auto answer = client.receive_answer();
  EXPECT_THAT(error_of(answer).text, HasSubstr("fell off the bus"));
}

}  // namespace card_test
}  // namespace terrace::node
