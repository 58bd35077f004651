// The control plane of one node as the coordinator uses it: our structs instead of protobuf's, one implementation over
// gRPC (grpc_node_control.h), and room for another in tests. Order of calls: describe, (estimate), open_session, (data
// connections), reserve, assign, batches, forget, close_session; heartbeat in between.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/function_ref.h"
#include "common/base/result.h"
#include "common/manifest/manifest.h"
#include "common/security/cipher.h"
#include "common/security/key.h"
#include "common/wire/messages.h"

namespace terrace::legs {

struct NodeDescription {
  std::string version;
  std::uint32_t protocol_min = 0, protocol_max = 0;
  std::uint32_t numerics_version = 0;
  std::uint64_t boot_id = 0;
  std::string isa;
  std::string link;  // what its data connections speak: "tcp", "ucx"; empty: not told
};

struct SessionRequest {
  std::uint32_t numerics_version = 0;
  std::span<const std::byte> manifest;  // manifest::serialize()
  wire::BatchLimits limits;             // max_rows, max_pairs, max_ranges are stated; the rest is in the manifest
  std::uint64_t largest_frame = 0;      // that we accept
  std::string coordinator;              // a name for the node's logs and status
  std::vector<security::Cipher> data_ciphers{security::Cipher::kPlain};  // that we take, best first
};

struct OpenedSession {
  std::uint32_t protocol = 0;
  std::uint64_t session = 0;
  std::uint64_t boot_id = 0;
  // Of its data connections. Without one they prove nothing: only a node that is played in a test gives none.
  std::optional<security::Key> data_key;
  security::Cipher data_cipher = security::Cipher::kPlain;
  std::uint32_t sockets = 1;  // that the bulk lane and the weights lane may have, each
  // Of the machine that answered, as a numeric address: a name may stand for several. Empty: not known, the address's
  // own host.
  std::string data_host;
  std::uint16_t data_port = 0;
  std::uint64_t largest_frame = 0;  // that the node accepts
  bool has_model = false;
};

struct ReservationBytes {
  std::uint64_t slabs = 0;  // as the file has them: how a node stores and rounds them is its own affair
  std::uint64_t staging = 0;
  std::uint64_t scratch = 0;
};

// What a session would take there, and what there is (docs/wire.md 5). Bytes.
struct NodeEstimate {
  std::uint64_t slabs = 0, staging = 0, scratch = 0;
  std::uint64_t total = 0;  // of the budget
  std::uint64_t budget = 0, free = 0;
  std::uint64_t available = 0;  // that the machine could give the node now
  std::uint64_t card = 0;       // of its slabs those on the node's card; not in the six above
  std::uint64_t card_budget = 0, card_free = 0;
};

// What a node says of itself when a session becomes a probe (docs/wire.md 13).
struct ProbedNode {
  std::uint64_t machine = 0;  // machine_id() there: equal where cores are shared; 0: not known
  std::uint64_t cache_bytes = 0;
  std::uint32_t threads = 0;
  std::uint64_t max_slab_bytes = 0;
};

struct LayerExperts {
  std::uint32_t layer = 0;
  std::vector<std::uint16_t> experts;  // rising
};

struct AssignProgress {
  bool ready = false;
  std::vector<LayerExperts> wanted;  // in the first answer, or later where the node's own file turned out wrong
  std::uint64_t slabs_total = 0, slabs_ready = 0, bytes_ready = 0;
};

// What `terrace status` shows.
struct NodeSessionStatus {
  std::uint64_t number = 0;  // as the node counts its sessions
  std::string coordinator;
  std::uint64_t epoch = 0, experts = 0, batches = 0, rows = 0, pairs = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0, compute_us = 0;
  std::string data_cipher;                   // "plain": its data connections are not sealed
  std::uint32_t sockets = 0;                 // of its bulk lane, and of its weights lane
  std::uint64_t link_bytes_per_second = 0;   // towards the coordinator, as measured; 0: not yet
  std::uint64_t paced_bytes_per_second = 0;  // that a bulk connection is given while decode steps live; 0: not paced
};
struct NodeCardStatus {
  std::uint32_t index = 0;
  std::string name;
  std::uint64_t budget = 0, reserved = 0, used = 0;  // bytes
};
struct NodeStatus {
  std::string listen;
  std::uint64_t boot_id = 0;
  std::string version;
  std::uint32_t numerics_version = 0;
  std::string state;  // "ok" or "draining"
  std::string isa;
  std::map<std::string, std::string> kernels;                             // weight type -> kernel
  std::uint64_t memory_budget = 0, memory_reserved = 0, memory_used = 0;  // bytes
  std::uint64_t memory_locked = 0;                                        // bytes that its system will not swap out
  std::uint32_t threads = 0;                                              // that compute
  std::vector<std::uint32_t> cpus;                                        // of each, or those that all share
  bool pinned = false;
  std::string waiting;     // "block" or "spin then park"
  std::string cpu_choice;  // why these, for people
  std::vector<NodeCardStatus> cards;
  std::vector<std::string> confinement;  // which rights the node's process has given up, for people
  std::string link;                      // what carries its data connections, for people
  std::vector<NodeSessionStatus> sessions;
};

// Every error's text begins with the node's address. Calls block up to their deadline and may come from any thread.
class NodeControl {
 public:
  virtual ~NodeControl() = default;
  virtual const std::string& address() const = 0;

  virtual Result<NodeDescription> describe() = 0;
  virtual Result<NodeStatus> status() = 0;
  // Opens nothing. model: numbers and shapes; limits and largest_frame: what open_session() will state; slab_bytes:
  // what reserve() will.
  virtual Result<NodeEstimate> estimate(const manifest::Manifest& model, const wire::BatchLimits& limits,
                                        std::uint64_t largest_frame, std::uint64_t slab_bytes) = 0;
  virtual Result<OpenedSession> open_session(const SessionRequest& request) = 0;
  // Returns the lease in milliseconds. kOutOfMemory carries the node's numbers.
  virtual Result<std::uint32_t> reserve(std::uint64_t session, const ReservationBytes& bytes) = 0;
  // What reserve() set aside becomes room for slab_bytes: more, for a further share, or less. kOutOfMemory as
  // reserve(), and then nothing has changed; kBusy: of less, slabs lie in a part. kRefused: this control cannot.
  virtual Status resize(std::uint64_t session, std::uint64_t slab_bytes);
  virtual Status heartbeat(std::uint64_t session) = 0;
  // Calls on_progress for each message until the node is ready; an error of on_progress ends the call with it.
  // kDeadline when the node says nothing for longer than the progress limit.
  virtual Status assign(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                        FunctionRef<Status(const AssignProgress&)> on_progress) = 0;
  // As assign(), of a share that the node has already, so that it answers at once: it is waited for no longer than in
  // forget(). Whoever asks looks after other nodes too.
  virtual Status acknowledge(std::uint64_t session, std::uint64_t epoch, std::span<const LayerExperts> share,
                             FunctionRef<Status(const AssignProgress&)> on_progress);
  // As resize(), to less: likewise.
  virtual Status give_back(std::uint64_t session, std::uint64_t slab_bytes);
  virtual Status forget(std::uint64_t session, std::uint64_t epoch) = 0;
  virtual Status close_session(std::uint64_t session) = 0;

  // Calls in progress and all later ones but close_session() end at once with kPeerGone: for a program that ends.
  virtual void cancel() {}
  // Between open_session() and reserve(): this session's slabs are made by the node. kBusy: another probe is open
  // there. kRefused: the node, or this control, cannot be probed.
  virtual Result<ProbedNode> probe(std::uint64_t session);
};

}  // namespace terrace::legs
