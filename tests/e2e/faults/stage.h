// One coordinator in this process, one real node, and whatever stands between them for a cell of the fault matrix.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/security/options.h"
#include "coordinator/app/engine.h"
#include "tests/e2e/faults/matrix.h"
#include "tests/e2e/support/disks.h"
#include "tests/e2e/support/gate_run.h"
#include "tests/e2e/support/held.h"
#include "tests/e2e/support/network.h"
#include "tests/e2e/support/node_process.h"
#include "tests/e2e/support/relay.h"

namespace terrace::test {

// What ends with a coordinator has ended by then: twice a session's lease, and well below a cell's Deadline.
inline constexpr std::chrono::seconds kCleanUp{20};

class Stage {
 public:
  // The node is up, with the relay before it.
  explicit Stage(const Cell& cell);
  // The coordinator too, and the node holds its share, unless it was lost meanwhile; nothing has been asked.
  void load();
  // Ends coordinator and node in order. The test fails where a node that lives keeps a session, memory of it, a
  // connection or a thread of the coordinator that is gone, or does not end.
  ~Stage();

  // Tokens and logits of a run; throws with the error's text.
  GateRun generate();
  // The same of a coordinator alone: what each run must give.
  static GateRun expected();

  // The fault of the cell, now, by any thread. `held`: a frame is held at the relay, and has to go on.
  void strike(bool held);
  // The other half of a node out of memory: waits until it is about to set memory for its share aside, and from then on
  // its system gives it none. False: it never came so far.
  bool starve();
  // What mends itself in the cell's fault: the link is up again, the node gets memory again.
  void mend();

  // Pairs that the node itself has computed so far.
  std::uint64_t pairs_of_the_node() const;
  // Whether the coordinator has said so of the node.
  bool has_told(const std::string& words) const;
  // The test fails where the run did not meet the cell's fault, but only what else happened then: a copy that was not
  // read, a file that was read nowhere or from memory, a disk that had room. Once no run follows.
  void expect_fault_was_met();

  Relay& relay() { return *relay_; }
  // Every connection with the node ends, as when it was killed; it lives, and is to be taken back.
  void lose_node();

 private:
  void start_node();
  void change_the_nodes_copy();
  void lose_node_until_its_last_lane(bool held);
  void expect_node_is_clean() const;
  legs::LegCounters counters_of_the_node() const;

  const Cell cell_;
  const TempDir dir_;
  std::filesystem::path model_;
  security::SecurityOptions security_;
  std::optional<SlowDisk> slow_disk_;
  std::optional<SmallDisk> small_disk_;
  std::optional<Machine> machine_;
  std::unique_ptr<NodeProcess> node_;
  Held node_held_;  // by the node before it had a coordinator
  std::unique_ptr<Relay> relay_;
  mutable std::mutex told_mutex_;
  std::string told_;  // lines of the coordinator about the node
  std::unique_ptr<app::Engine> engine_;
  // When the fault came.
  std::uint64_t weights_sent_before_ = 0, disk_bytes_before_ = 0;
};

// Ends the process with a sentence when it lives for longer than any cell takes: a hang names its cell.
class Deadline {
 public:
  explicit Deadline(std::string what);
  ~Deadline();

 private:
  std::jthread thread_;
};

}  // namespace terrace::test
