// Shares on their way to become epochs, from the node's own file and over the weights lane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/unit/tier_node/session/session_testing.h"

namespace terrace::node {
namespace {

using test::must;
using test::SessionTest;
using test::SessionWithoutFileTest;
using ::testing::HasSubstr;

// ---- epochs ---------------------------------------------------------------------------------------------------------

TEST_F(SessionTest, AssignFromOwnFile_EpochHoldsTheShareAndTheFilesBytes) {
  const SessionRef session = reserved(3);
  assign(session, 1, {{0, 2}, {0, 5}, {1, 0}});
  const EpochRef epoch = must(session->find_epoch(1));
  EXPECT_TRUE(epoch->holds(0, 2) && epoch->holds(0, 5) && epoch->holds(1, 0));
  EXPECT_FALSE(epoch->holds(0, 0) || epoch->holds(1, 2));
  const kernels::SlabView found = epoch->slab(0, 5), expected = model_.view(0, 5);
  const manifest::LayerShape& shape = model_.manifest.layers[0];
  EXPECT_EQ(std::memcmp(found.gate, expected.gate, shape.gate_bytes()), 0);
  EXPECT_EQ(std::memcmp(found.up, expected.up, shape.up_bytes()), 0);
  EXPECT_EQ(std::memcmp(found.down, expected.down, shape.down_bytes()), 0);
}

TEST_F(SessionTest, SharesThatAreWrong_RefusedByLayerAndExpert) {
  const SessionRef session = reserved(8);
  for (const std::vector<ShareItem>& share :
       std::vector<std::vector<ShareItem>>{{{2, 0}}, {{0, 8}}, {{0, 1}, {0, 1}}, {{0, 2}, {0, 1}}, {{1, 0}, {0, 0}}}) {
    const auto assignment = session->begin_assign(1, share);
    ASSERT_FALSE(assignment.ok());
    EXPECT_EQ(assignment.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(open()->begin_assign(1, {{0, 0}}).error().code(), ErrorCode::kInvalidArgument) << "no reservation";
}

TEST_F(SessionTest, EpochNumbersMustRise) {
  const SessionRef session = reserved(2);
  EXPECT_FALSE(session->begin_assign(0, {}).ok());
  assign(session, 3, {{0, 0}});
  EXPECT_EQ(session->begin_assign(3, {{0, 0}}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(session->begin_assign(2, {{0, 0}}).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(SessionTest, ThirdEpochWithNewSlabs_BusyUntilTheOldestIsForgotten) {
  const SessionRef session = reserved(6);
  assign(session, 1, {{0, 0}});
  assign(session, 2, {{0, 0}, {0, 1}});
  const auto third = session->begin_assign(3, {{0, 2}});
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(third.error().text(), HasSubstr("holds 1, 2"));
  must(session->forget(1));
  assign(session, 3, {{0, 2}});
}

// ---- a further share

TEST_F(SessionTest, FurtherShareWithRoomMade_LivesBesideTheFirst_AndTheRoomIsGivenBackOnceItIsForgotten) {
  const SessionRef session = reserved(2);
  assign(session, 1, {{0, 0}, {0, 1}});
  const std::uint64_t before = store_.usage().reserved;
  const std::vector<ShareItem> both = {{0, 0}, {0, 1}, {1, 2}};
  EXPECT_EQ(session->begin_assign(2, both).error().code(), ErrorCode::kOutOfMemory);
  must(table_->resize(*session, 3 * model_.manifest.slab_bytes(0), test::kGoOn));
  assign(session, 2, both);
  EXPECT_TRUE(must(session->find_epoch(2))->holds(1, 2));
  EXPECT_TRUE(must(session->find_epoch(1))->holds(0, 0));
  must(session->forget(1));
  const auto too_early = table_->resize(*session, 2 * model_.manifest.slab_bytes(0), test::kGoOn);
  ASSERT_FALSE(too_early.ok());
  EXPECT_EQ(too_early.error().code(), ErrorCode::kBusy);
  assign(session, 3, {{0, 0}, {0, 1}});
  must(session->forget(2));
  must(table_->resize(*session, 2 * model_.manifest.slab_bytes(0), test::kGoOn));
  EXPECT_EQ(store_.usage().reserved, before);
  EXPECT_TRUE(must(session->find_epoch(3))->holds(0, 1));
}

TEST_F(SessionTest, MoreRoomThanThereIs_RefusedAndTheSessionGoesOn) {
  const SessionRef session = reserved(2);
  assign(session, 1, {{0, 0}});
  const std::uint64_t before = store_.usage().reserved;
  const auto refused = table_->resize(*session, store_.usage().budget, test::kGoOn);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(store_.usage().reserved, before);
  EXPECT_EQ(table_->resize(*session, ~std::uint64_t{0}, test::kGoOn).error().code(), ErrorCode::kOutOfMemory);
  EXPECT_TRUE(must(session->find_epoch(1))->holds(0, 0));
}

TEST_F(SessionTest, RoomOfASessionThatHasNone_Refused) {
  EXPECT_EQ(table_->resize(*open(), 1, test::kGoOn).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(SessionTest, EpochsWithoutNewSlabs_AlwaysAccepted) {
  const SessionRef session = reserved(4);
  assign(session, 1, {{0, 0}, {0, 1}});
  assign(session, 2, {{0, 1}, {0, 2}});
  for (std::uint64_t epoch = 3; epoch < 10; ++epoch) assign(session, epoch, {{0, 0}, {0, 2}});
  for (std::uint64_t epoch = 1; epoch < 10; ++epoch) EXPECT_TRUE(session->find_epoch(epoch).ok());
}

TEST_F(SessionTest, MoreEpochsThanMayLive_BusyUntilTheOldestIsForgotten) {
  const SessionRef session = reserved(4);
  assign(session, 1, {{0, 0}});
  for (std::uint64_t epoch = 2; epoch <= EpochBook::kMaxLive; ++epoch) assign(session, epoch, {});
  const auto refused = session->begin_assign(EpochBook::kMaxLive + 1, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(refused.error().text(), HasSubstr("holds 1, 2, 3, 4, 5, 6, 7, 8 and 56 more; forget the oldest"));
  must(session->forget(1));
  assign(session, EpochBook::kMaxLive + 1, {{0, 0}});
}

TEST_F(SessionTest, LiveEpochsOfTooManyExpertsInAll_BusyAndChargedBefore) {
  const SessionRef session = reserved(16);
  const std::uint64_t held = session->model().max_live_items() * EpochBook::kBytesAnItem;
  EXPECT_GE(store_.usage().reserved, session->limits().scratch_bytes() + held);
  for (std::uint64_t epoch = 1; epoch <= 8; ++epoch) assign(session, epoch, model_.everything());
  const auto refused = session->begin_assign(9, {{0, 0}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
  EXPECT_THAT(refused.error().text(), HasSubstr("129 experts, 128 is the most"));
  must(session->forget(1));
  assign(session, 9, {{0, 0}});
}

TEST_F(SessionTest, ForgottenEpoch_StaleNamingBothAndItsSlabsAreFree) {
  const SessionRef session = reserved(4);
  assign(session, 40, {{0, 0}});
  assign(session, 41, {{0, 1}});
  const std::uint64_t used = store_.usage().used;
  must(session->forget(40));
  const auto found = session->find_epoch(40);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code(), ErrorCode::kStaleEpoch);
  EXPECT_THAT(found.error().text(), HasSubstr("epoch 40"));
  EXPECT_THAT(found.error().text(), HasSubstr("holds 41"));
  EXPECT_EQ(store_.usage().used, used / 2);
  EXPECT_EQ(session->forget(40).error().code(), ErrorCode::kStaleEpoch);
}

// Its coordinator has given it up; a loader that is still at it makes nothing live any more.
TEST_F(SessionTest, ForgottenBeforeItsSlabsAreThere_NeverBecomesLive) {
  const SessionRef session = reserved(4);
  assign(session, 1, {{0, 0}});
  const AssignmentRef given_up = must(session->begin_assign(2, {{0, 1}}));
  must(session->forget(2));
  EXPECT_TRUE(given_up->finished());
  EXPECT_EQ(session->pending_assign(), nullptr);
  session->finish_assign(given_up);
  EXPECT_EQ(session->find_epoch(2).error().code(), ErrorCode::kStaleEpoch);
  assign(session, 3, {{0, 2}});
}

TEST_F(SessionTest, ForgottenWhileABatchRuns_SlabsStayUntilItEnds) {
  const SessionRef session = reserved(1);
  assign(session, 1, {{0, 0}});
  EpochRef batch = must(session->find_epoch(1));
  must(session->forget(1));
  EXPECT_EQ(std::memcmp(batch->slab(0, 0).gate, model_.view(0, 0).gate, 64), 0);
  EXPECT_GT(store_.usage().used, 0u);
  batch.reset();
  EXPECT_EQ(store_.usage().used, 0u);
}

// Batches look without the session's lock, from a thread of their own.
TEST_F(SessionTest, EpochsComeAndGoWhileBatchesLookForTheirs_EachFindsItOrHearsThatItIsStale) {
  const SessionRef session = reserved(1);
  assign(session, 1, {{0, 0}});
  std::atomic<bool> done = false;
  std::thread batches([&] {
    while (!done) {
      EXPECT_EQ(must(session->find_epoch(1))->number(), 1u);
      const auto passing = session->find_epoch(20);
      if (passing.ok())
        EXPECT_EQ((*passing)->number(), 20u);
      else
        EXPECT_EQ(passing.error().code(), ErrorCode::kStaleEpoch);
    }
  });
  for (std::uint64_t epoch = 2; epoch < 100; ++epoch) {
    assign(session, epoch, {{0, 0}});
    EXPECT_TRUE(session->find_epoch(epoch).ok());
    if (epoch > 10) must(session->forget(epoch - 5));
  }
  done = true;
  batches.join();
}

TEST_F(SessionTest, ShareLargerThanTheReservation_RefusedWithBoth) {
  const SessionRef session = reserved(2);
  const auto assignment = session->begin_assign(1, model_.everything());
  ASSERT_FALSE(assignment.ok());
  EXPECT_EQ(assignment.error().code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(assignment.error().text(), HasSubstr("16 new slabs"));
}

TEST_F(SessionTest, TwoSessionsOfOneModel_ShareTheSlabs) {
  const SessionRef a = reserved(4), b = reserved(4);
  assign(a, 1, {{0, 0}, {0, 1}});
  const std::uint64_t used = store_.usage().used;
  assign(b, 1, {{0, 0}, {0, 1}});
  EXPECT_EQ(store_.usage().used, used);
  EXPECT_EQ(must(a->find_epoch(1))->slab(0, 0).gate, must(b->find_epoch(1))->slab(0, 0).gate);
  must(table_->close(a->id()));
  EXPECT_EQ(std::memcmp(must(b->find_epoch(1))->slab(0, 1).gate, model_.view(0, 1).gate, 64), 0);
}

TEST_F(SessionTest, AnotherSessionClaimsASlabsIdUnderAnotherShape_NeverGetsIt) {
  const SessionRef honest = reserved(1);
  assign(honest, 1, {{0, 0}});
  for (const auto& [ff_factor, down] : {std::pair{256u, TensorType::kQ8_0}, std::pair{1u, TensorType::kF32}}) {
    manifest::Manifest lie = model_.manifest;
    for (manifest::LayerShape& layer : lie.layers) {
      layer.ff *= ff_factor;
      layer.types.down = down;
    }
    const std::string bytes = manifest::serialize(lie);
    OpenRequest other = request();
    other.manifest = std::as_bytes(std::span(bytes));
    const SessionRef liar = must(table_->open(other)).session;
    must(table_->reserve(*liar, {lie.slab_bytes(0), 0, 0}, test::kGoOn));
    const AssignmentRef assignment = must(liar->begin_assign(1, {{0, 0}}));
    EXPECT_FALSE(assignment->finished()) << "ready without one byte sent";
    EXPECT_FALSE(liar->find_epoch(1).ok());
    must(table_->close(liar->id()));
  }
}

// ---- the weights lane -----------------------------------------------------------------------------------------------

TEST_F(SessionWithoutFileTest, SlabsInPieces_EpochIsReady) {
  const SessionRef session = reserved(2);
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 3}, {1, 7}}));
  loader_->start(session, assignment);
  AssignProgress progress = assignment->wait(std::chrono::seconds(10));
  EXPECT_EQ(progress.wanted, (std::vector<ShareItem>{{0, 3}, {1, 7}})) << "the first answer lists all";
  EXPECT_FALSE(session->find_epoch(1).ok());
  send(session, {1, 7}, model_.slab(1, 7));
  EXPECT_FALSE(assignment->finished());
  send(session, {0, 3}, model_.slab(0, 3), 1);
  progress = assignment->wait(std::chrono::milliseconds(0));
  EXPECT_TRUE(progress.ready);
  EXPECT_EQ(progress.slabs_ready, 2u);
  EXPECT_EQ(progress.bytes_ready, 2 * model_.manifest.slab_bytes(0));
  EXPECT_EQ(std::memcmp(must(session->find_epoch(1))->slab(0, 3).down, model_.view(0, 3).down, 64), 0);
}

// As several connections send them, and several threads hash them.
TEST_F(SessionWithoutFileTest, PiecesOfManySlabsMixed_AllAreVerified) {
  const std::vector<ShareItem> items = model_.everything();
  const SessionRef session = reserved(items.size());
  const AssignmentRef assignment = must(session->begin_assign(1, items));
  ask(session, assignment);
  constexpr std::size_t kPiece = 5'000;
  test::PieceWait wait;
  std::size_t sent = 0;
  for (std::size_t at = 0, left = 1; left > 0; at += kPiece) {
    left = 0;
    for (const ShareItem& item : items) {
      const std::vector<std::byte>& slab = model_.slab(item.layer, item.expert);
      if (at >= slab.size()) continue;
      const auto data = std::span(slab).subspan(at, std::min(kPiece, slab.size() - at));
      left += at + data.size() < slab.size();
      loader_->receive({session, {{item.layer, item.expert, at, slab.size()}, data}, &wait, 0, data});
      ++sent;
    }
  }
  wait.until_done(sent);
  EXPECT_FALSE(session->ended());
  EXPECT_TRUE(assignment->wait(std::chrono::milliseconds(0)).ready);
}

TEST_F(SessionWithoutFileTest, SlabWithOneWrongBit_EndsTheSessionNamingIt) {
  const SessionRef session = reserved(1);
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 3}}));
  ask(session, assignment);
  std::vector<std::byte> wrong = model_.slab(0, 3);
  wrong[wrong.size() / 2] ^= std::byte{1};
  send(session, {0, 3}, wrong);
  ASSERT_TRUE(session->ended());
  EXPECT_EQ(session->end_reason().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(session->end_reason().text(), HasSubstr("layer 0, expert 3 from the coordinator"));
  EXPECT_TRUE(assignment->wait(std::chrono::milliseconds(0)).failed);
}

TEST_F(SessionWithoutFileTest, PiecesThatBreakTheRules_EndTheSessionByName) {
  struct Case {
    wire::SlabPiece piece;
    const char* says;
  };
  const std::uint64_t bytes = model_.manifest.slab_bytes(0);
  const std::vector<Case> cases = {
      {{0, 4, 0, bytes}, "not asked for"},         {{7, 3, 0, bytes}, "not asked for"},
      {{0, 3, 100, bytes}, "begins at byte 100"},  {{0, 3, 0, bytes + 1}, "says the slab has"},
      {{0, 3, 0, bytes - 1}, "says the slab has"},
  };
  for (const Case& c : cases) {
    const SessionRef session = reserved(1);
    ask(session, must(session->begin_assign(1, {{0, 3}})));
    send_piece(session, c.piece, std::span(model_.slab(0, 3)).first(50));
    ASSERT_TRUE(session->ended()) << c.says;
    EXPECT_THAT(session->end_reason().text(), HasSubstr(c.says));
    EXPECT_THAT(session->end_reason().text(), HasSubstr("layer"));
  }
}

TEST_F(SessionWithoutFileTest, PieceSentTwice_EndsTheSession) {
  const SessionRef session = reserved(1);
  ask(session, must(session->begin_assign(1, {{0, 3}})));
  const std::uint64_t bytes = model_.manifest.slab_bytes(0);
  const auto piece = std::span(model_.slab(0, 3)).first(50);
  send_piece(session, {0, 3, 0, bytes}, piece);
  EXPECT_FALSE(session->ended());
  send_piece(session, {0, 3, 0, bytes}, piece);
  ASSERT_TRUE(session->ended());
  EXPECT_THAT(session->end_reason().text(), HasSubstr("begins at byte 0, 50 is next"));
}

TEST_F(SessionWithoutFileTest, AssignmentAbandoned_LatePiecesAreDroppedAndTheNextGoesThrough) {
  const SessionRef session = reserved(2);
  const AssignmentRef abandoned = must(session->begin_assign(1, {{0, 3}}));
  loader_->start(session, abandoned);
  session->abandon_assign(abandoned, Error(ErrorCode::kPeerGone, "cancelled"));
  send(session, {0, 3}, model_.slab(0, 3));
  EXPECT_FALSE(session->ended());
  const AssignmentRef next = must(session->begin_assign(2, {{0, 3}}));
  ask(session, next);
  send(session, {0, 3}, model_.slab(0, 3));
  EXPECT_TRUE(next->wait(std::chrono::milliseconds(0)).ready);
}

// The loader has looked at the assignment, the session is released, and then the slab would be allocated.
TEST_F(SessionWithoutFileTest, ReservationReleasedWhileAPieceIsOnItsWay_SessionLives) {
  const SessionRef session = reserved(2);
  ask(session, must(session->begin_assign(1, {{0, 3}})));
  must(session->release());
  EXPECT_EQ(session->allocate_slab(session->model().slab_id({0, 3}), session->model().layer(0).sizes).error().code(),
            ErrorCode::kRefused);
  send(session, {0, 3}, model_.slab(0, 3));
  EXPECT_FALSE(session->ended());
}

TEST_F(SessionWithoutFileTest, AbandonedAssignment_CannotBecomeLiveAfterwards) {
  const SessionRef session = reserved(2);
  const AssignmentRef abandoned = must(session->begin_assign(1, {{0, 3}}));
  session->abandon_assign(abandoned, Error(ErrorCode::kPeerGone, "cancelled"));
  session->finish_assign(abandoned);  // its last slab came at the same time
  EXPECT_FALSE(session->find_epoch(1).ok());
}

TEST_F(SessionWithoutFileTest, SecondAssignmentWithNewSlabsWhileOneWaits_Busy) {
  const SessionRef session = reserved(2);
  loader_->start(session, must(session->begin_assign(1, {{0, 3}})));
  EXPECT_EQ(session->begin_assign(2, {{0, 4}}).error().code(), ErrorCode::kBusy);
  EXPECT_TRUE(session->begin_assign(2, {}).ok()) << "no new slab";
}

TEST_F(SessionTest, OwnFileChangedSinceItWasHashed_AsksTheCoordinatorForThatSlab) {
  // A copy whose bytes differ from its manifest in one slab: as a file that was written to after the start.
  const auto copy = std::filesystem::temp_directory_path() / "terrace_session_test.gguf";
  std::filesystem::copy_file(model_.path, copy, std::filesystem::copy_options::overwrite_existing);
  Serial serial;
  const OwnModel own = must(OwnModel::open(copy, "", serial));
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    const auto& down = model_.experts.layers[0].down;
    file.seekp(static_cast<std::streamoff>(down.file_offset + 5 * down.stride + 2));
    file.put('\x55').put('\x33');
  }
  std::string logged;
  const Logger log = Logger::to_function(LogLevel::kWarn, [&](LogLevel, std::string_view text) { logged += text; });
  loader_ = must(SlabLoader::make(&own, log));
  const SessionRef session = reserved(3);
  const AssignmentRef assignment = must(session->begin_assign(1, {{0, 4}, {0, 5}, {0, 6}}));
  loader_->start(session, assignment);
  AssignProgress progress;
  while (progress.wanted.empty() && !progress.ready) progress = assignment->wait(std::chrono::milliseconds(50));
  EXPECT_EQ(progress.wanted, (std::vector<ShareItem>{{0, 5}}));
  send(session, {0, 5}, model_.slab(0, 5));
  EXPECT_TRUE(assignment->wait(std::chrono::seconds(10)).ready);
  loader_.reset();
  EXPECT_THAT(logged, HasSubstr("layer 0, expert 5 from " + copy.string()));
  std::filesystem::remove(copy);
}

}  // namespace
}  // namespace terrace::node
