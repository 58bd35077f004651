// What a node allocates for the pieces of slabs that come over the weights lane. Counts calls of operator new, which it
// replaces: a program of its own.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/transport/tcp/tcp.h"
#include "tests/unit/count_allocations.h"
#include "tests/unit/tier_node/support/node_parts.h"

namespace terrace::node {
namespace {

using test::must;

// Of all threads but this one, which is the coordinator's.
std::size_t node_allocations() { return terrace::test::allocations() - terrace::test::allocations_of_this_thread(); }

class PieceAllocations : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kPiece = 200;

  PieceAllocations() {
    test::NodeSettings settings;
    settings.own_model = false;
    settings.sessions.limits.seal = GetParam();
    node_ = std::make_unique<test::NodeParts>(model_, settings);
    node_->serve(tcp_, "127.0.0.1:0");
  }
  // Pieces [first, last) of a slab; returns when the node has dealt with all of them, and their credit is back.
  void send(const ShareItem& item, std::size_t first, std::size_t last) {
    const std::vector<std::byte>& slab = model_.slab(item.layer, item.expert);
    for (std::size_t piece = first; piece < last; ++piece) {
      const std::size_t at = piece * kPiece;
      weights_->send_piece({item.layer, item.expert, at, slab.size()},
                           std::span(slab).subspan(at, std::min(kPiece, slab.size() - at)));
      ++sent_;
    }
    while (weights_->credit_frames() < granted_ + sent_) ASSERT_TRUE(weights_->receive().has_value());
  }

  const test::TinyModel model_;
  transport::TcpTransport tcp_;
  std::unique_ptr<test::NodeParts> node_;
  test::LaneClient* weights_ = nullptr;
  std::uint64_t granted_ = 0, sent_ = 0;  // frames
};

TEST_P(PieceAllocations, NoneForAPieceAfterWarmUp) {
  const SessionRef session = node_->open();
  must(node_->sessions().reserve(*session, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  const AssignmentRef assignment = must(session->begin_assign(1, model_.everything()));
  node_->loader().start(session, assignment);
  while (assignment->wait(std::chrono::milliseconds(50)).wanted.empty()) {
  }
  test::LaneClient weights = node_->connect(*session, wire::Lane::kWeights);
  weights_ = &weights;
  granted_ = weights.greet().credit_frames;

  // A slab has memory and a hash made with its first piece, and joins the store with its last: those are left out. The
  // table of sessions may look around in between, so that the least of several slabs counts.
  std::size_t least = ~std::size_t{0};
  for (std::uint32_t expert = 0; expert < std::min(6u, model_.manifest.n_experts) && least != 0; ++expert) {
    const ShareItem item{0, expert};
    const std::size_t pieces = (model_.slab(0, expert).size() + kPiece - 1) / kPiece;
    ASSERT_GE(pieces, 20u);
    send(item, 0, 1);
    const std::size_t before = node_allocations();
    for (std::size_t first = 1; first + 1 < pieces; first += 8) send(item, first, std::min(first + 8, pieces - 1));
    if (expert > 0) least = std::min(least, node_allocations() - before);
    send(item, pieces - 1, pieces);
  }
  EXPECT_EQ(least, 0u) << "in the pieces of a slab";
}

INSTANTIATE_TEST_SUITE_P(Links, PieceAllocations, testing::Bool(),
                         [](const auto& test) { return test.param ? "Sealed" : "Plain"; });

}  // namespace
}  // namespace terrace::node
