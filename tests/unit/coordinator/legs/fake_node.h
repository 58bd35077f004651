// A tier node's data port for tests: accepts connections on a thread of its own and does with each frame what a script
// says. Scripts are built of mind_manners() (hello, ping) and a NodeBrain (batches), and misbehave where they like.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/function_ref.h"
#include "common/transport/connection.h"
#include "common/wire/messages.h"
#include "kernels/executor/executor.h"
#include "tests/unit/coordinator/legs/test_model.h"

namespace terrace::legs::test {

using namespace std::chrono_literals;

// Far more than any step takes; only a hang reaches it.
inline constexpr auto kPatience = 60s;

// One connection, on the node's thread.
class Peer {
 public:
  explicit Peer(std::unique_ptr<transport::Connection> connection) : connection_(std::move(connection)) {}

  // Session and lane are those of the last frame received.
  void send(wire::FrameHeader header, FunctionRef<void(wire::FrameBuilder&)> add);
  void send(wire::FrameType type, std::uint64_t sequence = 0);
  void send_error(std::uint64_t sequence, ErrorCode code, const std::string& text);
  void give_credit(std::uint32_t frames, std::uint64_t bytes);
  void send_raw(std::vector<std::byte> bytes);
  void hang_up() { connection_->close(); }

  wire::Lane lane() const { return last_.lane; }
  transport::Connection& connection() { return *connection_; }
  void set_last(const wire::FrameHeader& header) { last_ = header; }

 private:
  std::unique_ptr<transport::Connection> connection_;
  wire::FrameHeader last_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> sent_;  // borrowed by the connection
};

struct Seen {
  wire::FrameHeader header;
  std::uint64_t bytes = 0;
};

class FakeNode {
 public:
  using Script = std::function<void(Peer& peer, const wire::Frame& frame)>;

  FakeNode(transport::Transport& transport, Script script);
  // Without a thread: it runs while step() is called. It hangs up on a frame that is none, which else fails the test.
  struct Stepped {};
  FakeNode(transport::Transport& transport, Script script, Stepped);
  ~FakeNode();
  const std::string& address() const { return address_; }

  // One look at listener and connections. False: nothing was there to do.
  bool step();
  // On the node's thread, with the connections in the order they came; returns when it has run. Not of a stepped one.
  void run(const std::function<void(std::vector<std::unique_ptr<Peer>>& peers)>& job);
  // Every connection ends without a goodbye.
  void die();
  // Frames that came so far, hellos too.
  std::vector<Seen> seen() const;
  std::size_t count(wire::FrameType type) const;
  // Waits until `n` frames of the type have come.
  bool wait_for(wire::FrameType type, std::size_t n) const;

 private:
  void serve();

  Script script_;
  bool stepped_ = true;
  std::unique_ptr<transport::Listener> listener_;
  std::string address_;
  std::vector<std::unique_ptr<Peer>> peers_;  // the thread's

  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
  std::vector<std::function<void()>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

inline wire::Welcome ample_welcome() {
  return {.largest_frame = std::uint64_t{1} << 24, .credit_bytes = std::uint64_t{1} << 26, .credit_frames = 1000};
}
// Answers hello and ping. False: the frame is something else.
bool mind_manners(Peer& peer, const wire::Frame& frame, const wire::Welcome& welcome = ample_welcome());

// A reply before it is sent, for scripts to bend.
struct Reply {
  wire::FrameHeader header;
  wire::ReplyInfo info{};
  wire::ReplyForm form = wire::ReplyForm::kSum;
  std::vector<std::byte> data{};
  std::vector<std::uint16_t> failed_rows{};
  void send(Peer& peer) const;
};

// Computes batches as a node does.
class NodeBrain {
 public:
  explicit NodeBrain(const TestModel& model) : model_(model), executor_(serial_, model.ops) {}
  // One reply a range, in order; the last gives the batch's credit back.
  std::vector<Reply> replies(const wire::Frame& frame);

 private:
  const TestModel& model_;
  Serial serial_;
  kernels::Executor executor_;
};

}  // namespace terrace::legs::test
