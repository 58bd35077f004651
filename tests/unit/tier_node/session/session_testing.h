// A node's sessions without its ports.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/wire/versions.h"
#include "tests/unit/tier_node/support/tiny_model.h"
#include "tier_node/session/session_table.h"
#include "tier_node/session/slab_loader.h"

namespace terrace::node::test {

// Waits for pieces that a loader was given.
class PieceWait final : public PieceOwner {
 public:
  void piece_done(std::uint64_t, std::span<const std::byte>) override {
    const std::lock_guard lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
  // So many in all.
  void until_done(std::size_t pieces) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= pieces; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t done_ = 0;
};

// A table with a clock of its own and no thread of its own.
class SessionTest : public ::testing::Test {
 protected:
  static constexpr unsigned kReceivers = 3;  // threads

  explicit SessionTest(bool own_model = true)
      : store_({std::uint64_t{256} << 20, [this] {
                  in_reserve_();
                  return Result<std::uint64_t>(std::uint64_t{1} << 40);
                }}) {
    Serial serial;
    if (own_model) own_.emplace(must(OwnModel::open(model_.path, "", serial)));
    loader_ = must(SlabLoader::make(own_ ? &*own_ : nullptr, Logger::silent(), kReceivers));
    SessionOptions options;
    options.machine = this_machine();
    options.housekeeping = false;
    options.clock = [this] { return now_; };
    options.max_sessions = 3;
    table_ = must(SessionTable::create(store_, options, Logger::silent()));
  }
  ~SessionTest() override {
    table_->end_all(Error(ErrorCode::kPeerGone, "the test is over"));
    loader_.reset();
  }

  OpenRequest request() const {
    OpenRequest request;
    request.protocol_min = wire::kProtocolMin;
    request.protocol_max = wire::kProtocolMax;
    request.numerics_version = wire::kNumericsVersion;
    request.manifest = std::as_bytes(std::span(model_.manifest_bytes));
    request.limits = {16, 128, 4, std::uint64_t{1} << 20};
    request.coordinator = "box7";
    return request;
  }
  SessionRef open() { return must(table_->open(request())).session; }
  // Opened, with room for `slabs` of them.
  SessionRef reserved(std::uint64_t slabs) {
    SessionRef session = open();
    must(table_->reserve(*session, {slabs * model_.manifest.slab_bytes(0), 0, 0}, kGoOn));
    return session;
  }
  Status refusal(const OpenRequest& request) {
    const auto opened = table_->open(request);
    return opened.ok() ? Status() : Status(opened.error());
  }
  // Of a session over this manifest, lawful otherwise.
  Status refusal_of(const manifest::Manifest& manifest) {
    const std::string bytes = manifest::serialize(manifest);
    OpenRequest other = request();
    other.manifest = std::as_bytes(std::span(bytes));
    return refusal(other);
  }
  AssignProgress finish(const SessionRef& session, const AssignmentRef& assignment) {
    if (!assignment->finished()) loader_->start(session, assignment);
    AssignProgress progress = assignment->wait(std::chrono::milliseconds(0));
    while (!progress.ready && !progress.failed && progress.wanted.empty())
      progress = assignment->wait(std::chrono::milliseconds(50));
    return progress;
  }
  void assign(const SessionRef& session, std::uint64_t epoch, const std::vector<ShareItem>& items) {
    const auto assignment = session->begin_assign(epoch, items);
    ASSERT_TRUE(assignment.ok()) << assignment.error().text();
    ASSERT_TRUE(finish(session, *assignment).ready);
  }
  // Until the coordinator is asked for slabs.
  void ask(const SessionRef& session, const AssignmentRef& assignment) {
    ASSERT_FALSE(finish(session, assignment).wanted.empty());
  }
  // Sends a slab in pieces, as if they came over the weights lane, and waits until the last is dealt with.
  void send(const SessionRef& session, const ShareItem& item, std::vector<std::byte> bytes,
            std::size_t piece_bytes = 20'000) {
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
      const std::size_t size = std::min(piece_bytes, bytes.size() - at);
      send_piece(session, {item.layer, item.expert, at, bytes.size()}, std::span(bytes).subspan(at, size));
    }
  }
  void send_piece(const SessionRef& session, const wire::SlabPiece& piece, std::span<const std::byte> data) {
    PieceWait wait;
    loader_->receive({session, {piece, data}, &wait, 0, data});
    wait.until_done(1);
  }

  TinyModel model_;
  std::function<void()> in_reserve_ = [] {};  // runs while a reservation is made
  TimePoint now_ = std::chrono::steady_clock::now();
  std::optional<OwnModel> own_;
  arena::SlabStore store_;
  std::unique_ptr<SlabLoader> loader_;
  std::unique_ptr<SessionTable> table_;
};

class SessionWithoutFileTest : public SessionTest {
 protected:
  SessionWithoutFileTest() : SessionTest(false) {}
};

}  // namespace terrace::node::test
