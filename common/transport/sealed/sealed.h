// Authenticates the connections of any transport, and seals their frames where a cipher was agreed on
// (docs/wire.md 12).
//
// Both ends prove that they hold the session's key before a frame of the layers above moves (handshake.h). With a
// cipher every later frame is encrypted and bound to its header, its place in the stream, its direction, lane and
// session; one that does not open ends the connection. Without one (Cipher::kPlain) frames pass as they are, with the
// checksum that they bring: nothing but the proofs then stands against somebody on the path.
//
// Memory   Sealing encrypts into buffers of the connection, as far ahead of the link as kSealAhead and one frame:
//          no allocation after warm-up. Frames are opened where they were received.
// Cost     Encrypting is the one copy that a sealed frame takes, and the gather list ends with it; opening is in place.
//          Inside the tcp transport it would be the same, so it stands over all of them (docs/adr/0021).
// Order    faulty below, so that its faults meet sealed bytes; recording above, so that records can be read.
// Threads  As the inner transport.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/transport/connection.h"
#include "common/transport/sealed/link_key.h"

namespace terrace::transport {

// Sealed and not yet taken by the link: less than this and one frame.
inline constexpr std::uint64_t kSealAhead = std::uint64_t{256} << 10;
// Frames of one direction of one connection; at this number it ends, like a cut. Connection::near_its_end() says so
// frames_before_end() earlier: more than any credit lets be under way, so that an owner who looks loses none.
inline constexpr std::uint64_t kMostSealedFrames = std::uint64_t{1} << 32;
constexpr std::uint64_t frames_before_end(std::uint64_t most_frames) {
  return std::min(most_frames / 4, std::uint64_t{1} << 20);
}

class SealedTransport final : public Transport {
 public:
  using RandomBytes = std::function<Status(std::span<std::byte>)>;

  // `find_key` serves listen(), null for a coordinator. `random` fills a handshake's nonce. most_frames: of one
  // direction of a sealed connection.
  explicit SealedTransport(std::shared_ptr<Transport> inner, KeyFinder find_key = nullptr);
  SealedTransport(std::shared_ptr<Transport> inner, KeyFinder find_key, RandomBytes random,
                  std::uint64_t most_frames = kMostSealedFrames);

  // kInvalidArgument: no key finder.
  Result<std::unique_ptr<Listener>> listen(const std::string& address, const Options& options) override;
  // kInvalidArgument: no Options::key. The handshake goes on in poll(); until it is done send() queues.
  Result<std::unique_ptr<Connection>> connect(const std::string& address, const Options& options,
                                              std::chrono::milliseconds timeout) override;
  const char* name() const override { return inner_->name(); }

 private:
  std::shared_ptr<Transport> inner_;
  KeyFinder find_key_;
  RandomBytes random_;
  std::uint64_t most_frames_;
};

}  // namespace terrace::transport
