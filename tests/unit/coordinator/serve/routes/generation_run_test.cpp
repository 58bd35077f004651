// One HTTP request, several of the scheduler's: what reaches whom, and what is cancelled when.
#include "coordinator/serve/routes/generation_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/serve/routes/fakes.h"

namespace terrace::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class GenerationRun : public ::testing::Test {
 protected:
  void run(std::size_t requests, bool stream, const std::string& path = "/v1/chat/completions") {
    exchange_ = exchange(path);
    auto answer = std::make_unique<FakeAnswer>(requests, stream);
    answer->cancel_at_piece = cancel_at_piece_;
    api::Generation generation;
    generation.requests.resize(requests);
    generation.answer = std::move(answer);
    generation.stream = stream;
    generation.ping = ping_;
    run_generation(std::move(generation), exchange_, scheduler_);
  }
  static std::shared_ptr<FakeExchange> exchange(const std::string& path) {
    http::Request request;
    request.path = path;
    request.client = "key 1";
    return std::make_shared<FakeExchange>(std::move(request));
  }
  void piece(std::size_t i) { scheduler_.listeners[i]->on_piece({}, {}); }
  void end(std::size_t i) { scheduler_.listeners[i]->on_end({}); }
  void fail(std::size_t i) { scheduler_.listeners[i]->on_error({ErrorCode::kPeerGone, "box1 is gone"}, {}); }

  FakeScheduler scheduler_;
  std::shared_ptr<FakeExchange> exchange_;
  bool ping_ = true;
  bool cancel_at_piece_ = false;
};

TEST_F(GenerationRun, WithoutStream_TheAnswerComesWholeAtTheLastEnd) {
  run(2, false);
  EXPECT_EQ(scheduler_.submitted[0].client, "key 1");
  piece(0);
  piece(1);
  end(0);
  EXPECT_FALSE(exchange_->replied);
  end(1);
  ASSERT_TRUE(exchange_->replied);
  EXPECT_EQ(exchange_->replied->status, 200);
  EXPECT_EQ(exchange_->replied->body, "piece 0;piece 1;end;");
  EXPECT_THAT(exchange_->replied->headers, IsEmpty());
  EXPECT_FALSE(exchange_->began);
  EXPECT_THAT(scheduler_.cancelled, IsEmpty());
}

TEST_F(GenerationRun, Stream_BeginsWhenAllAreAccepted_BeforeAnythingIsMade) {
  run(1, true);
  ASSERT_TRUE(exchange_->began);
  EXPECT_EQ(exchange_->began->content_type, "text/event-stream");
  EXPECT_NE(exchange_->began->ping, "");
  piece(0);
  EXPECT_EQ(exchange_->written, "piece 0;");
  EXPECT_FALSE(exchange_->finished);
  end(0);
  EXPECT_EQ(exchange_->written, "piece 0;end;");
  EXPECT_TRUE(exchange_->finished);
  EXPECT_FALSE(exchange_->replied);
}

TEST_F(GenerationRun, StreamWithoutPings_HasNone) {
  ping_ = false;
  run(1, true);
  EXPECT_EQ(exchange_->began->ping, "");
}

TEST_F(GenerationRun, FullQueue_Is503WithATimeToComeBack_AlsoForAStream) {
  for (const bool stream : {false, true}) {
    FakeScheduler full;
    full.refuse_from = 0;
    exchange_ = exchange("/v1/chat/completions");
    api::Generation generation;
    generation.requests.resize(1);
    generation.answer = std::make_unique<FakeAnswer>(1, stream);
    generation.stream = stream;
    run_generation(std::move(generation), exchange_, full);
    ASSERT_TRUE(exchange_->replied);
    EXPECT_EQ(exchange_->replied->status, 503);
    EXPECT_THAT(exchange_->replied->headers, ElementsAre(std::pair<std::string, std::string>("Retry-After", "2")));
    EXPECT_FALSE(exchange_->began);
  }
}

TEST_F(GenerationRun, OneOfSeveralRefused_CancelsThoseBefore_AndSubmitsNoFurther) {
  scheduler_.refuse_from = 2;
  run(4, false);
  EXPECT_EQ(exchange_->replied->status, 503);
  EXPECT_THAT(scheduler_.cancelled, UnorderedElementsAre(1, 2));
  end(0);  // as the scheduler says when it has cancelled
  end(1);
}

TEST_F(GenerationRun, ErrorBeforeTheFirstPiece_Is500ThatIsNotToBeSentAgain) {
  run(2, false);
  fail(0);
  EXPECT_EQ(exchange_->replied->status, 500);
  EXPECT_THAT(exchange_->replied->headers, ElementsAre(std::pair<std::string, std::string>("x-should-retry", "false")));
  EXPECT_THAT(scheduler_.cancelled, ElementsAre(2));  // the other one; the failed one has ended
}

TEST_F(GenerationRun, ErrorOfAStreamThatHasBegun_IsItsLastEvent) {
  run(1, true);
  fail(0);
  EXPECT_EQ(exchange_->written, "data: {\"error\":\"box1 is gone\"}\n\n");
  EXPECT_EQ(exchange_->failure, "box1 is gone");  // for the log: the status was 200
  EXPECT_TRUE(exchange_->finished);
  EXPECT_FALSE(exchange_->replied);
  run(1, true, "/v1/messages");
  scheduler_.listeners.back()->on_error({ErrorCode::kPeerGone, "box1 is gone"}, {});
  EXPECT_EQ(exchange_->written, "event: error\ndata: {\"error\":\"box1 is gone\"}\n\n");
}

TEST_F(GenerationRun, ClientThatLeaves_CancelsWhatStillRuns_Once) {
  run(3, true);
  end(1);
  exchange_->leave();
  exchange_->leave();
  EXPECT_THAT(scheduler_.cancelled, UnorderedElementsAre(1, 3));
}

TEST_F(GenerationRun, AnswerThatHasEnough_CancelsThatRequestOnce) {
  cancel_at_piece_ = true;
  run(2, true);
  piece(1);
  piece(1);
  EXPECT_THAT(scheduler_.cancelled, ElementsAre(2));
}

TEST_F(GenerationRun, EventsBeforeSubmitReturns_AreNotLost_NorIsACancelThen) {
  cancel_at_piece_ = true;
  scheduler_.at_submit = [](Listener& listener) { listener.on_piece({}, {}); };
  run(1, true);
  EXPECT_THAT(scheduler_.cancelled, ElementsAre(1));
}

}  // namespace
}  // namespace terrace::serve
