// A probe stands before no stream: its large batches let other sessions' decode batches pass, whatever they call
// themselves.
#include <gtest/gtest.h>

#include "tests/unit/tier_node/service/data_server_testing.h"

namespace terrace::node {
namespace probe_batch_test {

using test::kSeed;
using test::LaneClient;
using test::must;
using test::NodeParts;
using test::TestBatch;

using ProbeBatch = test::DataServerTest;

TEST_F(ProbeBatch, CalledDecode_WaitsWithThePromptsAndLetsADecodeBatchPass) {
  NodeParts node(model_);
  node.serve();
  const SessionRef session = node.ready_session();
  const SessionRef probe = node.open();
  must(node.sessions().begin_probe(probe->id()));
  must(node.sessions().reserve(*probe, {model_.all_slab_bytes(), 0, 0}, test::kGoOn));
  node.assign(probe, 1, model_.everything());  // all there: shared with the first session
  LaneClient measuring = node.connect(*probe, wire::Lane::kLatency),
             decoding = node.connect(*session, wire::Lane::kLatency);
  measuring.greet();
  decoding.greet();
  const TestBatch large(model_, 0, 512, 8, kSeed), small(model_, 0, 1, 2, kSeed);

  node.gate().close();
  const std::uint64_t large_sequence = measuring.send_batch(large, 1, wire::Priority::kDecode);
  node.gate().await_standstill();  // it is being computed
  const std::uint64_t small_sequence = decoding.send_batch(small, 1, wire::Priority::kDecode);
  // Taken in: the pong comes behind it.
  decoding.send_plain(wire::FrameType::kPing, 7);
  ASSERT_EQ(decoding.receive_answer()->type(), wire::FrameType::kPong);
  while (session->counters().batches == 0 && probe->counters().batches == 0) {
    node.gate().permit_one();
    node.gate().await_standstill();
  }
  EXPECT_EQ(session->counters().batches, 1u);
  EXPECT_EQ(probe->counters().batches, 0u) << "the stream waited for the whole of the probe's batch";
  node.gate().open();
  EXPECT_EQ(test::collect(decoding, small, *session, small_sequence), small.expected(model_));
  EXPECT_EQ(test::collect(measuring, large, *probe, large_sequence), large.expected(model_));
}

}  // namespace probe_batch_test
}  // namespace terrace::node
