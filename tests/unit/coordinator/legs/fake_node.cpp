#include "tests/unit/coordinator/legs/fake_node.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <condition_variable>

#include "common/wire/pack.h"
#include "tests/unit/common/wire/frames.h"

namespace terrace::legs::test {

void Peer::send(wire::FrameHeader header, FunctionRef<void(wire::FrameBuilder&)> add) {
  header.session = last_.session;
  header.lane = last_.lane;
  wire::FrameBuilder builder;
  builder.begin(header);
  add(builder);
  const auto frame = wire::test::finish(builder);
  send_raw({frame.view().begin(), frame.view().end()});
}

void Peer::send(wire::FrameType type, std::uint64_t sequence) {
  send({.type = type, .sequence = sequence}, [](wire::FrameBuilder&) {});
}

void Peer::send_error(std::uint64_t sequence, ErrorCode code, const std::string& text) {
  send({.type = wire::FrameType::kError, .sequence = sequence},
       [&](wire::FrameBuilder& builder) { wire::add_error(builder, code, text); });
}

void Peer::give_credit(std::uint32_t frames, std::uint64_t bytes) {
  send({.type = wire::FrameType::kCredit, .credit_frames = frames, .credit_bytes = bytes}, [](wire::FrameBuilder&) {});
}

void Peer::send_raw(std::vector<std::byte> bytes) {
  sent_.push_back(std::make_unique<std::vector<std::byte>>(std::move(bytes)));
  const std::array<std::span<const std::byte>, 1> parts{*sent_.back()};
  (void)connection_->send(parts);  // the coordinator may have gone
}

FakeNode::FakeNode(transport::Transport& transport, Script script) : FakeNode(transport, std::move(script), Stepped{}) {
  stepped_ = false;
  thread_ = std::thread([this] { serve(); });
}

FakeNode::FakeNode(transport::Transport& transport, Script script, Stepped) : script_(std::move(script)) {
  auto listener = transport.listen("127.0.0.1:0", {});
  TERRACE_CHECK(listener.ok(), "a fake node listens");
  listener_ = std::move(*listener);
  address_ = listener_->address();
}

FakeNode::~FakeNode() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void FakeNode::serve() {
  for (;;) {
    std::vector<std::function<void()>> jobs;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      jobs.swap(jobs_);
    }
    for (const auto& job : jobs) job();
    if (step()) continue;
    std::vector<pollfd> entries{{listener_->wait_fd(), POLLIN, 0}};
    for (const auto& peer : peers_)
      if (const int fd = peer->connection().wait_fd(); fd >= 0)
        entries.push_back({fd, peer->connection().wait_events(), 0});
    ::poll(entries.data(), entries.size(), 2);
  }
}

bool FakeNode::step() {
  bool busy = false;
  if (auto accepted = listener_->accept(); accepted.ok() && *accepted) {
    peers_.push_back(std::make_unique<Peer>(std::move(*accepted)));
    busy = true;
  }
  for (auto& peer : peers_) {
    std::array<transport::Event, 16> events;
    const std::size_t n = peer->connection().poll(events);
    busy = busy || n > 0;
    for (const transport::Event& event : std::span(events).first(n)) {
      if (event.kind != transport::Event::Kind::kReceived) continue;
      const auto frame = wire::decode_frame(event.frame);
      EXPECT_TRUE(frame.ok() || stepped_) << frame.error().text();
      if (!frame.ok()) peer->hang_up();
      if (frame.ok()) {
        peer->set_last(frame->header);
        {
          const std::lock_guard lock(mutex_);
          seen_.push_back({frame->header, event.frame.size()});
        }
        script_(*peer, *frame);
      }
      peer->connection().release(event.frame);
    }
  }
  return busy;
}

void FakeNode::run(const std::function<void(std::vector<std::unique_ptr<Peer>>& peers)>& job) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back([&] {
      job(peers_);
      const std::lock_guard guard(mutex);
      done = true;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

void FakeNode::die() {
  run([](auto& peers) { peers.clear(); });
}

std::vector<Seen> FakeNode::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::size_t FakeNode::count(wire::FrameType type) const {
  std::size_t n = 0;
  for (const Seen& frame : seen()) n += frame.header.type == type;
  return n;
}

bool FakeNode::wait_for(wire::FrameType type, std::size_t n) const {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (count(type) < n) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

bool mind_manners(Peer& peer, const wire::Frame& frame, const wire::Welcome& welcome) {
  switch (frame.header.type) {
    case wire::FrameType::kHello:
      EXPECT_TRUE(wire::read_hello(frame).ok());
      peer.send({.type = wire::FrameType::kWelcome},
                [&](wire::FrameBuilder& builder) { wire::add_welcome(builder, welcome); });
      return true;
    case wire::FrameType::kPing:
      peer.send(wire::FrameType::kPong, frame.header.sequence);
      return true;
    case wire::FrameType::kPong:
    case wire::FrameType::kClose:
    case wire::FrameType::kError:
      return true;
    default:
      return false;
  }
}

void Reply::send(Peer& peer) const {
  peer.send(header, [this](wire::FrameBuilder& builder) { wire::add_reply(builder, info, form, data, failed_rows); });
}

std::vector<Reply> NodeBrain::replies(const wire::Frame& frame) {
  const auto batch = wire::read_batch(frame, model_.limits());
  EXPECT_TRUE(batch.ok()) << batch.error().text();
  if (!batch.ok()) return {};
  const kernels::ExpertKernels& kernels = model_.kernels[batch->layer];
  std::vector<kernels::Pair> pairs;
  for (const wire::Pair& pair : batch->pairs) pairs.push_back({pair.row, pair.expert, pair.weight});
  const bool slots = batch->info.form == wire::ReplyForm::kSlots;
  std::vector<float> outputs(slots ? pairs.size() * kWidth : 0);
  Sums sums(batch->info.n_rows);
  const kernels::BatchView view{
      {batch->info.gate_class, batch->gate_rows.data(), row_bytes(batch->info.gate_class, kWidth)},
      {batch->info.up_class, batch->up_rows.data(), row_bytes(batch->info.up_class, kWidth)},
      batch->info.n_rows,
      pairs};
  const auto slab_of = [&](std::uint16_t expert) { return model_.layers[batch->layer].experts[expert].view(); };
  const auto go_on = [] { return true; };
  EXPECT_TRUE(slots ? executor_.run_slots(kernels, slab_of, view, outputs, sums.failed, go_on).ok()
                    : executor_.run(kernels, slab_of, view, sums.view(), sums.failed, go_on).ok());

  std::vector<Reply> replies(batch->ranges.size());
  for (std::uint32_t i = 0; i < replies.size(); ++i) {
    const wire::RowRange range = batch->ranges[i];
    Reply& reply = replies[i];
    reply.header = {
        .type = wire::FrameType::kReply, .layer = batch->layer, .sequence = batch->sequence, .epoch = batch->epoch};
    reply.info.range_index = i;
    reply.info.n_rows = range.count;
    reply.form = batch->info.form;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      if (pairs[p].row < range.first || pairs[p].row >= range.first + range.count) continue;
      ++reply.info.n_pairs;
      if (!slots) continue;
      const auto bytes = std::as_bytes(std::span(outputs).subspan(p * kWidth, kWidth));
      reply.data.insert(reply.data.end(), bytes.begin(), bytes.end());
    }
    reply.info.compute_us = 5;
    for (std::uint32_t row = range.first; row < range.first + range.count; ++row) {
      const std::size_t at = reply.data.size();
      if (!slots) {
        reply.data.resize(at + wire::widest_packed_bytes(kWidth));
        reply.data.resize(at + wire::pack_row({sums.view().row(row), kWidth}, reply.data.data() + at));
      }
      if (sums.failed[row] != 0) reply.failed_rows.push_back(static_cast<std::uint16_t>(row));
    }
  }
  if (!replies.empty()) {
    replies.back().header.credit_frames = 1;
    replies.back().header.credit_bytes = wire::kHeaderBytes + frame.header.body_length;
  }
  return replies;
}

}  // namespace terrace::legs::test
