// What comes by UCX is put in order, each frame once, within what was granted; whatever else comes ends the connection.
// Messages come as UCX's handler gets them, without UCX.
#include "common/transport/ucx/inbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/contract/transport_harness.h"

namespace terrace::transport {
namespace {

using test::TestFrame;
using testing::HasSubstr;

class InboxTest : public testing::Test {
 protected:
  void receive(std::uint64_t number, const TestFrame& frame) { receive(number, frame.contiguous()); }
  void receive(std::uint64_t number, std::vector<std::byte> bytes, bool rendezvous = false) {
    Channel::Message message;
    message.header.number = number;
    message.data = bytes.data();
    message.bytes = bytes.size();
    message.rendezvous = rendezvous;
    (void)inbox_->on_frame(message);
  }
  void expect_failure(const std::string& what) {
    ASSERT_TRUE(inbox_->failure().has_value());
    EXPECT_EQ(inbox_->failure()->code(), ErrorCode::kCorrupt);
    EXPECT_THAT(inbox_->failure()->text(), HasSubstr(what));
  }
  void open(std::uint64_t largest_frame, std::uint64_t window) {
    inbox_ = std::make_unique<Inbox>(Options{.largest_frame = largest_frame, .receive_window = window});
  }

  std::unique_ptr<Inbox> inbox_ = std::make_unique<Inbox>(Options());
};

TEST_F(InboxTest, NumbersInAnyOrder_ComeOutInTheirs) {
  const TestFrame first(1, 80), second(2, 160), third(3, 64);
  receive(2, third);
  receive(1, second);
  EXPECT_FALSE(inbox_->has_next());
  EXPECT_TRUE(inbox_->is_unfinished());
  receive(0, first);
  for (const TestFrame* frame : {&first, &second, &third}) {
    const auto next = inbox_->next();
    ASSERT_TRUE(next.has_value());
    EXPECT_TRUE(std::ranges::equal(*next, frame->contiguous()));
    inbox_->release(*next);
  }
  EXPECT_FALSE(inbox_->next().has_value());
  EXPECT_FALSE(inbox_->is_unfinished());
}

TEST_F(InboxTest, FramesThatCameWithTheirMessage_AreCountedAsCopied) {
  receive(0, TestFrame(1, 80));
  receive(1, TestFrame(2, 4096));
  EXPECT_EQ(inbox_->bytes_copied(), 80u + 4096u);
}

TEST_F(InboxTest, AnnouncedFrameShorterThanAHeader_Fails) {
  for (const std::size_t bytes : {std::size_t{0}, wire::kHeaderBytes - 1}) {
    open(4096, 8192);
    receive(0, std::vector<std::byte>(bytes), true);
    expect_failure("at least 64");
  }
}

TEST_F(InboxTest, NumberThatHasCome_Fails) {
  receive(0, TestFrame(1, 80));
  receive(0, TestFrame(1, 80));
  expect_failure("frame 0 came where 0 to 1023 may come, each once");
}

TEST_F(InboxTest, NumberThatWasTaken_Fails) {
  receive(0, TestFrame(1, 80));
  inbox_->release(*inbox_->next());
  receive(0, TestFrame(1, 80));
  expect_failure("frame 0 came where 1 to 1024 may come, each once");
}

TEST_F(InboxTest, LastNumberOfTheWindow_FitsAndTheNextOneFails) {
  receive(kFramesAhead - 1, TestFrame(1, 64));
  EXPECT_FALSE(inbox_->failure().has_value());
  receive(kFramesAhead, TestFrame(1, 64));
  expect_failure("frame 1024 came");
}

TEST_F(InboxTest, MoreBytesThanGranted_Fail) {
  open(4096, 8192);
  receive(0, TestFrame(1, 4096));
  receive(1, TestFrame(2, 4096));
  EXPECT_FALSE(inbox_->failure().has_value());
  receive(2, TestFrame(3, 64));
  expect_failure("more than this side gave credit for");
}

TEST_F(InboxTest, LongerThanAllowed_FailsBeforeItIsFetched) {
  open(4096, 8192);
  receive(0, std::vector<std::byte>(4112), true);
  expect_failure("frame of 4112 bytes, at least 64 and at most 4096 here");
  EXPECT_FALSE(inbox_->has_to_fetch());
}

TEST_F(InboxTest, EmptyOrNoFrameOrOfAnotherLength_Fails) {
  receive(0, std::vector<std::byte>());
  expect_failure("frame of 0 bytes");
  open(4096, 8192);
  receive(0, std::vector<std::byte>(96, std::byte{0x47}));
  expect_failure("magic 0x47474747");
  open(4096, 8192);
  std::vector<std::byte> longer = TestFrame(1, 160).contiguous();
  longer.resize(longer.size() + 16);
  receive(0, longer);
  expect_failure("frame of 176 bytes, its header says 160");
}

TEST_F(InboxTest, Credit_IsOwedWhereThePeerMayWait) {
  open(4096, 8192);
  for (std::uint64_t i = 0; i < 2; ++i) receive(i, TestFrame(1, 2048));
  for (int i = 0; i < 2; ++i) inbox_->release(*inbox_->next());
  EXPECT_TRUE(inbox_->owes_credit()) << "half of the window is free and untold";
  inbox_->told_credit();
  EXPECT_FALSE(inbox_->owes_credit());
}

TEST_F(InboxTest, ManySmallFramesTaken_CreditOfFramesIsOwed) {
  for (std::uint64_t i = 0; i < kFramesAhead / 4; ++i) {
    EXPECT_FALSE(inbox_->owes_credit()) << i;
    receive(i, TestFrame(1, 64));
    inbox_->release(*inbox_->next());
  }
  EXPECT_TRUE(inbox_->owes_credit());
}

}  // namespace
}  // namespace terrace::transport
