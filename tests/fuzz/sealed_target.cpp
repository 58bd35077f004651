// Sealed frames as they come: the input is a stream of them behind an honest handshake whose random bytes are fixed, so
// that the seeds open. The first byte says by which cipher.
// Whatever comes, a frame is given to the layers above only if it is byte for byte one that was sealed, in its turn.
#include <cstring>

#include "common/base/check.h"
#include "common/transport/sealed/sealed_connection.h"
#include "tests/contract/sealed_transport.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/common/transport/pipe.h"

namespace terrace::fuzz {
namespace {

using transport::Event;
using transport::Handshake;
using transport::SealedConnection;
using transport::test::Pipe;

constexpr security::Cipher kCiphers[] = {security::Cipher::kAes256Gcm, security::Cipher::kChaCha20Poly1305};
constexpr wire::Nonce kCoordinator{std::byte{1}};
constexpr wire::Nonce kNode{std::byte{2}};

struct End {
  explicit End(std::unique_ptr<Handshake> handshake) {
    auto made = std::make_unique<Pipe>();
    pipe = made.get();
    connection = std::make_unique<SealedConnection>(std::move(made), std::move(handshake), 16);
  }
  // Frames given to the layers above.
  std::vector<std::vector<std::byte>> poll() {
    std::vector<std::vector<std::byte>> frames;
    std::array<Event, 8> events;
    while (const std::size_t n = connection->poll(events))
      for (const Event& event : std::span(events).first(n)) {
        if (event.kind != Event::Kind::kReceived) continue;
        frames.emplace_back(event.frame.begin(), event.frame.end());
        connection->release(event.frame);
      }
    return frames;
  }
  Pipe* pipe = nullptr;
  std::unique_ptr<SealedConnection> connection;
};

struct Pair {
  explicit Pair(security::Cipher cipher)
      : link(transport::test::test_link(cipher)),
        coordinator(std::make_unique<Handshake>(link, kCoordinator)),
        node(std::make_unique<Handshake>(transport::test::finder_of(link), kNode)) {
    for (int round = 0; round < 3; ++round) {
      for (auto [from, to] : {std::pair(&node, &coordinator), std::pair(&coordinator, &node)}) {
        for (const auto& frame : from->pipe->sent) to->pipe->deliver(frame);
        from->pipe->sent.clear();
        (void)to->poll();
      }
    }
    TERRACE_CHECK(coordinator.connection->security().proven && node.connection->security().proven, "an honest pair");
  }
  const transport::LinkKey link;
  End coordinator, node;
};

// Three frames: none, a small and a larger body.
std::vector<std::vector<std::byte>> plain_frames() {
  std::vector<std::vector<std::byte>> frames;
  for (const std::size_t bytes : {0u, 32u, 500u}) {
    const std::vector<std::byte> data(bytes, std::byte{0x42});
    wire::FrameBuilder builder;
    builder.begin(
        {.type = bytes == 0 ? wire::FrameType::kPing : wire::FrameType::kSlab, .sequence = frames.size() + 1});
    if (bytes > 0) builder.add(wire::SectionTag::kSlabBytes, 0, data);
    std::vector<std::byte>& frame = frames.emplace_back();
    for (const auto part : builder.finish()) frame.insert(frame.end(), part.begin(), part.end());
  }
  return frames;
}

std::vector<std::vector<std::byte>> sealed_frames(security::Cipher cipher) {
  Pair pair(cipher);
  for (const auto& frame : plain_frames()) {
    const std::span<const std::byte> parts[] = {frame};
    TERRACE_CHECK(pair.coordinator.connection->send(parts).ok(), "it is open");
  }
  return {pair.coordinator.pipe->sent.begin(), pair.coordinator.pipe->sent.end()};
}

}  // namespace

void run_target(std::span<const std::byte> input) {
  static const auto plain = plain_frames();
  if (input.empty()) return;
  Pair pair(kCiphers[static_cast<std::size_t>(input[0]) % std::size(kCiphers)]);
  input = input.subspan(1);
  std::size_t given = 0;
  while (input.size() >= wire::kHeaderBytes) {
    // As a stream is cut: by the header's length, whatever it says.
    const std::size_t stated = wire::kHeaderBytes + wire::body_length(input);
    const auto frame = input.first(std::min(stated, input.size()));
    input = input.subspan(frame.size());
    pair.node.pipe->deliver(frame);
    for (const auto& opened : pair.node.poll()) {
      TERRACE_CHECK(given < plain.size() && opened == plain[given], "a frame was given on that nobody sealed");
      ++given;
    }
    TERRACE_CHECK(pair.node.pipe->lent() == 0, "every frame's memory is given back");
  }
}

std::vector<Seed> make_seeds() {
  std::vector<Seed> seeds;
  for (std::size_t i = 0; i < std::size(kCiphers); ++i) {
    Seed all{std::string(security::name(kCiphers[i])), {static_cast<std::byte>(i)}};
    for (const auto& frame : sealed_frames(kCiphers[i])) all.bytes.insert(all.bytes.end(), frame.begin(), frame.end());
    seeds.push_back(std::move(all));
  }
  Seed twice{"twice", {std::byte{0}}};
  const auto frames = sealed_frames(kCiphers[0]);
  for (const std::size_t which : {0u, 1u, 1u})
    twice.bytes.insert(twice.bytes.end(), frames[which].begin(), frames[which].end());
  seeds.push_back(std::move(twice));
  return seeds;
}

}  // namespace terrace::fuzz
