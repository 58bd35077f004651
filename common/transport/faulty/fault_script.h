// What is to go wrong, and where: a list of faults that each name a frame by its number, and delays of every frame.
// The same script, seed and order of frames give the same faults.
//
// Numbers  Frames are counted from 0 in the order in which they pass the wrapped end, over all connections of the
//          transport, in the fault's direction. A received frame passes when it is read from the inner transport.
// Threads  FaultState locks; connections of several threads may share it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace terrace::transport {

// What time it is for delays. A simulation has one of its own.
class FaultClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~FaultClock() = default;
  virtual TimePoint now() const = 0;
};

enum class Direction : std::uint8_t { kOut, kIn };  // as the wrapped end sees it
inline constexpr std::size_t kDirections = 2;

struct Fault {
  enum class Kind : std::uint8_t {
    kCut,       // the connection ends instead of this frame; of one that is sent, the first `bytes` still leave (1)
    kCorrupt,   // one bit is the other one: `bit`, or one that the seed draws
    kTruncate,  // the last `bytes` are missing (1)
    kDrop,      // the frame vanishes, the connection goes on
    kStall,     // this frame and all that follow in its direction never pass; the connection stays open
    kDelay,     // this frame takes `delay` longer, and those behind it wait
    kStarve,    // from this frame on no frame in its direction brings credit
  };
  // (1) A piece of a frame can be sent where the inner transport is a stream of bytes (tcp). Loopback knows whole
  //     frames only: its receiver closes with kCorrupt.
  static constexpr std::uint64_t kAnyBit = std::numeric_limits<std::uint64_t>::max();

  Kind kind = Kind::kCut;
  std::optional<Direction> direction{};  // of the frames counted; without one, both together
  std::uint64_t frame = 0;
  bool everywhere = false;  // kCut, kStall, kStarve: every open connection of the transport, as when a machine dies
  std::uint64_t bytes = 0;
  std::uint64_t bit = kAnyBit;  // modulo the frame's bits
  std::chrono::nanoseconds delay{0};
};

struct FaultScript {
  std::uint64_t seed = 1;
  std::vector<Fault> faults;
  // Of every frame, by Direction; frames of a connection keep their order.
  std::array<std::chrono::nanoseconds, kDirections> delay{};
  std::array<std::chrono::nanoseconds, kDirections> jitter{};  // up to so much more, evenly drawn from the seed
};

// What happens to one frame.
struct Verdict {
  std::optional<std::uint64_t> cut_after;  // bytes that still leave
  std::optional<std::uint64_t> flip_bit;   // any number: modulo the frame's bits
  std::uint64_t truncate = 0;              // bytes
  bool drop = false;
  bool stall = false;
  bool starve = false;
  std::chrono::nanoseconds delay{0};
  std::uint64_t frame = 0;  // its number in its direction, for messages

  bool changes_bytes() const { return flip_bit || truncate > 0 || cut_after || starve; }
};

// A script and how far it has come. Shared by the connections of a transport.
class FaultState {
 public:
  explicit FaultState(FaultScript script) : script_(std::move(script)), random_(script_.seed) {}

  // The next frame of some connection. Stalls and starvation that began before on this connection are its own affair,
  // those everywhere are in here.
  Verdict judge(Direction direction);
  // Faults that have met their frame.
  std::uint64_t fired() const { return fired_.load(std::memory_order_relaxed); }
  // Frames that passed, in both directions.
  std::uint64_t frames() const;
  // Rises with every cut everywhere: a connection made at another number than today's is to end.
  std::uint64_t cuts_everywhere() const { return cuts_everywhere_.load(std::memory_order_acquire); }

 private:
  void apply(const Fault& fault, Direction direction, Verdict& verdict);

  const FaultScript script_;
  std::atomic<std::uint64_t> fired_ = 0;
  std::atomic<std::uint64_t> cuts_everywhere_ = 0;

  mutable std::mutex mutex_;  // guards all below
  std::mt19937_64 random_;
  std::array<std::uint64_t, kDirections> passed_{};
  std::array<bool, kDirections> stalled_everywhere_{};
  std::array<bool, kDirections> starved_everywhere_{};
};

}  // namespace terrace::transport
