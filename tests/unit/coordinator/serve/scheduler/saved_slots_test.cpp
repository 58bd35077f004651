// Slots that are saved, restored and erased.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "coordinator/serve/scheduler/slot_file.h"
#include "tests/unit/coordinator/serve/scheduler/scheduler_fixture.h"

namespace terrace::serve {
namespace {

using test::long_request;
using test::request_for;
using test::ServedModel;
using test::some_tokens;
using test::with;

class SavedSlots : public test::SchedulerTest {};

TEST_F(SavedSlots, SavedSlotInANewScheduler_GoesOnWithTheSameBits) {
  const Request first = request_for(some_tokens(70, 1), 5);
  Request second = first;
  second.prompt.resize(60);
  {
    const auto scheduler = make(with(1));
    expect_alone(*ask(*scheduler, first), first);
    const auto saved = scheduler->save_slot(0, file("kept"));
    ASSERT_TRUE(saved.ok()) << saved.error().text();
    EXPECT_EQ(saved->tokens, 74u);
    EXPECT_EQ(saved->bytes, std::filesystem::file_size(file("kept")));
  }
  const auto scheduler = make(with(2));
  const auto restored = scheduler->restore_slot(1, file("kept"));
  ASSERT_TRUE(restored.ok()) << restored.error().text();
  EXPECT_EQ(restored->tokens, 74u);
  EXPECT_EQ(scheduler->status().slots[1].stored_tokens, 74u);
  const auto heard = ask(*scheduler, second);
  expect_alone(*heard, second);
  EXPECT_EQ(heard->timings().cache_n, 59u);
}

TEST_F(SavedSlots, SlotIsSavedWhileItRuns) {
  const auto scheduler = make(with(1));
  const auto heard = ask(*scheduler, long_request(1));
  ASSERT_TRUE(heard->wait_for_tokens(40));
  const auto saved = scheduler->save_slot(0, file("running"));
  ASSERT_TRUE(saved.ok()) << saved.error().text();
  EXPECT_GE(saved->tokens, 44u);
  expect_alone(*heard, long_request(1));
  ASSERT_TRUE(scheduler->erase_slot(0).ok());
  ASSERT_TRUE(scheduler->restore_slot(0, file("running")).ok());
  const auto again = ask(*scheduler, long_request(1));
  expect_alone(*again, long_request(1));
}

TEST_F(SavedSlots, EmptySlot_CannotBeSavedAndErasingItIsNoError) {
  const auto scheduler = make(with(2));
  EXPECT_EQ(scheduler->save_slot(1, file("empty")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(*scheduler->erase_slot(1), 0u);
  EXPECT_EQ(scheduler->erase_slot(2).error().code(), ErrorCode::kInvalidArgument);
}

// Every byte of the file matters, whatever stands in it.
TEST_F(SavedSlots, DamagedFile_IsRefusedAndTheSlotKeepsWhatItHad) {
  const auto scheduler = make(with(1));
  const Request request = request_for(some_tokens(40, 1), 2);
  expect_alone(*ask(*scheduler, request), request);
  ASSERT_TRUE(scheduler->save_slot(0, file("whole")).ok());
  std::string bytes;
  {
    std::ifstream in(file("whole"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto restore = [&](const std::string& damaged) {
    std::ofstream(file("damaged"), std::ios::binary) << damaged;
    return scheduler->restore_slot(0, file("damaged"));
  };
  ASSERT_TRUE(restore(bytes).ok());
  const std::size_t step = bytes.size() / 200;
  for (std::size_t at = 0; at < bytes.size(); at += at < 300 ? 1 : step) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    EXPECT_FALSE(restore(damaged).ok()) << "byte " << at;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{60}, bytes.size() / 2, bytes.size() - 1})
    EXPECT_FALSE(restore(bytes.substr(0, size)).ok()) << size << " bytes";
  EXPECT_FALSE(restore(bytes + "x").ok());
  EXPECT_EQ(scheduler->restore_slot(0, file("absent")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(scheduler->restore_slot(0, testing::TempDir()).error().code(), ErrorCode::kInvalidArgument);
  const auto heard = ask(*scheduler, request);
  expect_alone(*heard, request);
  EXPECT_EQ(heard->timings().cache_n, 39u);
}

// A node that had a part in the tokens is found wrong while they are written: what was saved before is still good.
TEST_F(SavedSlots, SaveThatProvesUncertain_LeavesWhatHadTheNameAsItWas) {
  const kv::CacheShape shape = model_.parts().trunk.cache().shape();
  const SlotFileIdentity identity{"a model", shape};
  const std::vector<std::byte> block(shape.block_bytes());
  const auto save = [&](const std::vector<std::int32_t>& tokens, const Status& verdict) {
    return write_slot_file(
        file("kept"), identity, tokens, [&](std::size_t) { return std::span<const std::byte>(block); },
        [&] { return verdict; });
  };
  ASSERT_TRUE(save({1, 2, 3}, {}).ok());
  EXPECT_EQ(save({4, 5}, Error(ErrorCode::kUncertain, "wrong")).error().code(), ErrorCode::kUncertain);
  const auto kept = SlotFile::open(file("kept"), identity, 100, 100);
  ASSERT_TRUE(kept.ok()) << kept.error().text();
  EXPECT_EQ(kept->tokens(), (std::vector<std::int32_t>{1, 2, 3}));
}

// Each holds what it saves: one that were kept would leave no sequence for the next.
TEST_F(SavedSlots, SavesThatCannotBeWritten_GiveUpWhatTheyHeld) {
  const auto scheduler = make(with(1));
  const Request request = request_for(some_tokens(40, 1), 2);
  expect_alone(*ask(*scheduler, request), request);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(scheduler->save_slot(0, file("absent/kept")).error().code(), ErrorCode::kIo);
  const auto saved = scheduler->save_slot(0, file("kept"));
  EXPECT_TRUE(saved.ok()) << saved.error().text();
}

TEST_F(SavedSlots, FileOfAnotherModelOrCache_IsRefused) {
  {
    const auto scheduler = make(with(1));
    const Request request = request_for(some_tokens(40, 1), 2);
    expect_alone(*ask(*scheduler, request), request);
    ASSERT_TRUE(scheduler->save_slot(0, file("mine")).ok());
  }
  SchedulerOptions options = with(1);
  options.model_hash = "another model";
  EXPECT_EQ(make(options)->restore_slot(0, file("mine")).error().code(), ErrorCode::kRefused);
  arch::TrunkOptions trunk = ServedModel::trunk(8);
  trunk.kv = kernels::KvType::kF32;
  ServedModel wide(trunk, serial_);
  const auto scheduler = test::value_of(Scheduler::make(wide.parts(), with(1)));
  EXPECT_EQ(scheduler->restore_slot(0, file("mine")).error().code(), ErrorCode::kRefused);
  trunk = ServedModel::trunk(8);
  trunk.context = 32;
  ServedModel narrow(trunk, serial_);
  const auto short_context = test::value_of(Scheduler::make(narrow.parts(), with(1)));
  EXPECT_EQ(short_context->restore_slot(0, file("mine")).error().code(), ErrorCode::kContextFull);
}

}  // namespace
}  // namespace terrace::serve
