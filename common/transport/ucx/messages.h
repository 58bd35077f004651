// What every UCX message of ours begins with. Only for common/transport/ucx.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace terrace::transport {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian and so must the host be");

// Ids of active messages (docs/wire.md 14).
enum class MessageId : unsigned {
  kFrame = 1,    // header, then one frame
  kCredit = 2,   // header alone: what it says of released and taken
  kGoodbye = 3,  // header alone: the connection ends after `number` frames
};

// `number` of a goodbye that comes at once: frames before it are not waited for.
inline constexpr std::uint64_t kAtOnce = ~std::uint64_t{0};

struct MessageHeader {
  std::uint64_t token = 0;     // the receiver's: names the connection
  std::uint64_t number = 0;    // of the frame, from 0
  std::uint64_t released = 0;  // bytes of frames that the sender of this has received and released, of all time
  std::uint64_t taken = 0;     // frames that its owner has been given, of all time
};
static_assert(std::has_unique_object_representations_v<MessageHeader> && sizeof(MessageHeader) == 32);

// Frames that may be under way or wait for their turn at the receiver: what comes is put in order by number, each
// once. UCX promises neither: a frame that is fetched by rendezvous is complete after a smaller one sent behind it.
inline constexpr std::uint64_t kFramesAhead = 1024;

}  // namespace terrace::transport
