// What tests of the data server share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/unit/tier_node/support/node_parts.h"

namespace terrace::node::test {

// Sums of all ranges of a batch, as the node answers.
inline std::vector<std::int64_t> collect(LaneClient& client, const TestBatch& batch, const Session& session,
                                         std::uint64_t sequence) {
  std::vector<std::int64_t> sums(std::size_t{batch.n_rows} * batch.d_model());
  for (std::size_t range = 0; range < batch.ranges.size(); ++range) {
    const auto reply = client.receive_answer();
    if (!reply || reply->type() != wire::FrameType::kReply) {
      ADD_FAILURE() << "no reply to range " << range << ": " << error_of(reply).text;
      return sums;
    }
    EXPECT_EQ(reply->header().sequence, sequence);
    add_reply_sums(*reply, batch, session, sums);
  }
  return sums;
}

class DataServerTest : public ::testing::Test {
 protected:
  TinyModel model_;
};

// Everything that must not depend on the other session's fate ends with this.
inline void expect_serves(const TinyModel& model, LaneClient& client, const Session& session) {
  const TestBatch batch(model, 0, 3, 2, kSeed);
  const std::uint64_t sequence = client.send_batch(batch, 1);
  EXPECT_EQ(collect(client, batch, session, sequence), batch.expected(model));
  EXPECT_FALSE(session.ended());
}

}  // namespace terrace::node::test
