// A relay between a coordinator and a node, in the test's hands: it knows frames of the data plane, holds one that the
// test names until the test has done what it wants to do then, and passes it on whole, changed, or not at all.
//
// It listens on another address of this machine under the node's own two port numbers, so that the data port that the
// node states leads here too.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/wire/frame.h"

namespace terrace::test {

class Relay {
 public:
  enum class Way : std::uint8_t { kToNode, kToCoordinator };
  // A frame: the `skip`+1st from now on that goes this way and is of this type (none: any) on this lane (none: any).
  struct Point {
    Way way = Way::kToNode;
    std::optional<wire::FrameType> type{};
    std::optional<wire::Lane> lane{};
    unsigned skip = 0;
  };
  enum class Deed : std::uint8_t {
    kPass,      // as it is
    kCorrupt,   // one bit in its middle is the other one
    kTruncate,  // without its last bytes, behind which the connection ends
    kVersion,   // of the next frame version, with a checksum that is right
    kPayload,   // one bit of its last section is the other one, with a checksum that is right
  };

  // node: HOST:PORT of its control plane. Throws when it cannot listen.
  Relay(const std::string& node, std::uint16_t data_port);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return address_; }  // HOST:PORT, for --node

  // The frame at `point` will be held; replaces the point before. Frames behind it on its connection wait too.
  void hold_at(const Point& point);
  // Waits until it is held; false: the point was dropped, or the test's patience is over.
  bool wait_held();
  // Nobody waits for the point any more.
  void drop_point();
  // Ends the holding, or, where nothing is held yet, is what happens to the frame without any.
  void go(Deed deed);
  // Whether the frame of the last point has passed.
  bool gone() const;
  // From now on nothing passes in either direction, and connections stay open; false: it goes on.
  void set_mute(bool mute);
  // Every connection ends; new ones are made as before.
  void cut();
  // Where nothing is under way: the coordinator gets a ping that the node did not send on each lane, as the deed leaves
  // it. Not kPass and kPayload.
  void slip_in(Deed deed);

 private:
  struct Link;
  void listen(const std::string& host, std::uint16_t port, bool data);
  void accept(int listener, std::uint16_t port, bool data);
  void carry(Link& link, Way way);
  bool pass_frames(Link& link, Way way, std::vector<std::byte>& pending, int to);
  Deed judge(Way way, wire::FrameType type, wire::Lane lane);
  void wait_while_mute();

  std::string node_host_;
  std::string address_;
  std::vector<int> listeners_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<Point> point_;
  std::optional<Deed> deed_;  // of the point's frame, where it is known
  bool held_ = false;
  bool gone_ = false;
  bool mute_ = false;
  bool stop_ = false;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::thread> threads_;
};

}  // namespace terrace::test
