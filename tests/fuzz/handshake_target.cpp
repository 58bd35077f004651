// The words before hello, as both ends hear them: the first byte says which end listens, the rest are frames, each
// behind two bytes that say how long it is. No end may take another for proven that does not hold the key; frames that
// do prove it are among the seeds, since the random bytes of both ends are fixed here.
#include <cstring>

#include "common/base/check.h"
#include "common/transport/sealed/handshake.h"
#include "tests/contract/sealed_transport.h"
#include "tests/fuzz/fuzz_target.h"

namespace terrace::fuzz {
namespace {

using transport::Handshake;

constexpr wire::Nonce kCoordinator{std::byte{1}};
constexpr wire::Nonce kNode{std::byte{2}};

transport::LinkKey link() { return transport::test::test_link(security::Cipher::kAes256Gcm); }

template <class Parts>
std::vector<std::byte> joined(const Parts& parts) {
  std::vector<std::byte> all;
  for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// What the two ends say to each other when all is well: challenge, proof, accept.
std::vector<std::vector<std::byte>> honest_words() {
  Handshake coordinator(link(), kCoordinator), node(transport::test::finder_of(link()), kNode);
  std::vector<std::vector<std::byte>> words{joined(node.open())};
  words.push_back(joined(coordinator.take(words[0]).value()));
  words.push_back(joined(node.take(words[1]).value()));
  return words;
}

// The 16-byte aligned copy that a connection's buffer is.
struct Aligned {
  explicit Aligned(std::span<const std::byte> bytes)
      : data(static_cast<std::byte*>(::operator new (bytes.size(), std::align_val_t{16}))), size(bytes.size()) {
    if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  }
  Aligned(const Aligned&) = delete;
  ~Aligned() { ::operator delete (data, std::align_val_t{16}); }
  std::span<const std::byte> view() const { return {data, size}; }
  std::byte* data;
  std::size_t size;
};

void append(std::vector<std::byte>& input, std::span<const std::byte> frame) {
  input.push_back(static_cast<std::byte>(frame.size()));
  input.push_back(static_cast<std::byte>(frame.size() >> 8));
  input.insert(input.end(), frame.begin(), frame.end());
}

}  // namespace

void run_target(std::span<const std::byte> input) {
  static const std::vector<std::vector<std::byte>> honest = honest_words();
  if (input.empty()) return;
  const bool is_node = (input[0] & std::byte{1}) != std::byte{0};
  input = input.subspan(1);
  std::unique_ptr<Handshake> end = is_node ? std::make_unique<Handshake>(transport::test::finder_of(link()), kNode)
                                           : std::make_unique<Handshake>(link(), kCoordinator);
  (void)end->open();
  bool proof_heard = false;
  while (input.size() >= 2 && !end->done()) {
    const std::size_t said = static_cast<std::size_t>(input[0]) | static_cast<std::size_t>(input[1]) << 8;
    const auto bytes = input.subspan(2, std::min(said, input.size() - 2));
    input = input.subspan(2 + bytes.size());
    const Aligned frame(bytes);
    // Of the node's accept only the code counts beside what both know; of the proof every byte.
    proof_heard = proof_heard || std::ranges::equal(bytes, honest[is_node ? 1 : 2]);
    const auto answer = end->take(frame.view());
    if (!answer.ok()) {
      if (is_node) TERRACE_CHECK(joined(end->refusal(answer.error())).size() <= 1024, "a short refusal");
      return;
    }
    TERRACE_CHECK(joined(*answer).size() <= 256, "words are short");
  }
  TERRACE_CHECK(!end->done() || proof_heard, "an end was taken for proven that did not prove it");
}

std::vector<Seed> make_seeds() {
  const auto words = honest_words();
  Seed node{"node", {std::byte{1}}}, coordinator{"coordinator", {std::byte{0}}};
  append(node.bytes, words[1]);
  append(coordinator.bytes, words[0]);
  append(coordinator.bytes, words[2]);
  Seed refused{"refused", {std::byte{0}}}, late{"hello-first", {std::byte{1}}};
  wire::FrameBuilder builder;
  builder.begin({.type = wire::FrameType::kError});
  wire::add_error(builder, ErrorCode::kRefused, "no");
  append(refused.bytes, joined(builder.finish()));
  builder.begin({.type = wire::FrameType::kHello, .session = 1, .sequence = 1});
  wire::add_hello(builder, {.largest_frame = 4096});
  append(late.bytes, joined(builder.finish()));
  return {node, coordinator, refused, late};
}

}  // namespace terrace::fuzz
