// How the two ends of a data connection prove to each other that they hold the session's key (docs/wire.md 12):
//
//   node         challenge   16 random bytes, as soon as the connection is there
//   coordinator  proof       session and lane, 16 random bytes of its own, an HMAC over all of it
//   node         accept      its own HMAC over the same
//
// The coordinator proves itself first: a stranger gets random bytes and one refusal, whatever it asks for. A proof is
// over the node's random bytes, so one that was overheard opens nothing.
// No frames are sent or received here: this is one end's state and its words.
// Threads  One at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "common/base/result.h"
#include "common/transport/sealed/link_key.h"
#include "common/transport/send_queue.h"
#include "common/wire/frame.h"

namespace terrace::transport {

class Handshake {
 public:
  // The coordinator's end. `random` is new for each connection.
  Handshake(const LinkKey& link, const wire::Nonce& random)
      : role_(Role::kCoordinator), next_(Next::kChallenge), random_(random), link_(link) {}
  // The node's end.
  Handshake(KeyFinder find_key, const wire::Nonce& random)
      : role_(Role::kNode), next_(Next::kProof), random_(random), find_key_(std::move(find_key)) {}
  Handshake(Handshake&&) = delete;  // frames point into it

  // The frame that opens the conversation; empty: the other end's turn. What this and take() give lies in here until
  // the end of the handshake.
  std::span<const Part> open();
  // The other end's next frame, 16-byte aligned, of any content; gives the answer to it, empty where none is due.
  // kCorrupt: it is no frame, or not the one that is due. kRefused: no proof of the session's key; at the coordinator
  // also the node's own words, should it have any.
  Result<std::span<const Part>> take(std::span<const std::byte> frame);
  // The node's words to a coordinator that it hangs up on.
  std::span<const Part> refusal(const Error& why);

  bool is_node() const { return role_ == Role::kNode; }
  // Both have proven themselves; what comes next is protected by secrets().
  bool done() const { return next_ == Next::kNothing; }
  const LinkKey& link() const { return link_; }
  const LinkSecrets& secrets() const { return secrets_; }

 private:
  enum class Role : std::uint8_t { kCoordinator, kNode };
  enum class Next : std::uint8_t { kChallenge, kProof, kAccept, kNothing };  // that the other end owes

  Result<std::span<const Part>> answer_challenge(const wire::Frame& frame);
  Result<std::span<const Part>> answer_proof(const wire::Frame& frame);
  Result<std::span<const Part>> take_accept(const wire::Frame& frame);
  wire::FrameBuilder& begin(wire::FrameType type);

  const Role role_;
  Next next_;
  const wire::Nonce random_;
  KeyFinder find_key_;  // of a node
  LinkKey link_;        // a node's: once a proof names it
  LinkSecrets secrets_;
  std::array<wire::FrameBuilder, 2> frames_;  // a node says two things, and the first may still lie unsent
  std::size_t n_frames_ = 0;
  std::string refusal_;
};

}  // namespace terrace::transport
