// What sealing costs: frames sealed and opened, one core, by size; and a layer of a decode step, 5 KB out and 15 KB
// back, both ends counted.
//
//   ninja -C build/release terrace-bench-sealing
//   build/release/tests/terrace-bench-sealing --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
//
// bytes_per_second is that of sealing and opening together: one end's share is about half the time. The share of a
// decode step is the time of BM_DecodeLayer x layers / the step's time; on separate cores each end has half of it.
// BM_Checksum is what a plain frame costs instead, at both ends.
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <vector>

#include "common/security/aead.h"
#include "common/wire/frame.h"

namespace terrace {
namespace {

using security::Cipher;

constexpr std::size_t kBatchBytes = 5 << 10, kReplyBytes = 15 << 10;

// One direction of a connection: a frame's body from where it lies into the connection's memory, and there in place.
class Direction {
 public:
  Direction(Cipher cipher, std::size_t bytes)
      : sealer_(security::Sealer::create(cipher, key_).value()),
        opener_(security::Opener::create(cipher, key_).value()),
        body_(bytes, std::byte{0x5a}),
        sealed_(bytes) {}

  bool seal_and_open() {
    sealer_.begin(number_, header_);
    sealer_.add(body_, sealed_.data());
    sealer_.finish(tag_);
    benchmark::ClobberMemory();
    return opener_.open(number_++, header_, sealed_, tag_);
  }

 private:
  const security::Key key_;
  security::Sealer sealer_;
  security::Opener opener_;
  const std::array<std::byte, wire::kHeaderBytes> header_{};
  const std::vector<std::byte> body_;
  std::vector<std::byte> sealed_;
  std::array<std::byte, security::kTagBytes> tag_{};
  std::uint64_t number_ = 0;
};

void BM_SealAndOpen(benchmark::State& state, Cipher cipher) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Direction direction(cipher, bytes);
  for (auto _ : state)
    if (!direction.seal_and_open()) return state.SkipWithError("it does not open");
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void BM_DecodeLayer(benchmark::State& state, Cipher cipher) {
  Direction out(cipher, kBatchBytes), back(cipher, kReplyBytes);
  for (auto _ : state)
    if (!out.seal_and_open() || !back.seal_and_open()) return state.SkipWithError("it does not open");
}

// Made by the sender, made again by the receiver.
void BM_Checksum(benchmark::State& state) {
  const std::vector<std::byte> data(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  wire::FrameBuilder builder;
  for (auto _ : state) {
    builder.begin({.type = wire::FrameType::kSlab});
    builder.add(wire::SectionTag::kSlabBytes, 0, data);
    benchmark::DoNotOptimize(builder.finish());
    builder.begin({.type = wire::FrameType::kSlab});
    builder.add(wire::SectionTag::kSlabBytes, 0, data);
    benchmark::DoNotOptimize(builder.finish());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int bytes : {64, 5 << 10, 15 << 10, 1 << 20}) benchmark->Arg(bytes);
}

BENCHMARK_CAPTURE(BM_SealAndOpen, aes_256_gcm, Cipher::kAes256Gcm)->Apply(sizes);
BENCHMARK_CAPTURE(BM_SealAndOpen, chacha20_poly1305, Cipher::kChaCha20Poly1305)->Apply(sizes);
BENCHMARK_CAPTURE(BM_DecodeLayer, aes_256_gcm, Cipher::kAes256Gcm);
BENCHMARK_CAPTURE(BM_DecodeLayer, chacha20_poly1305, Cipher::kChaCha20Poly1305);
BENCHMARK(BM_Checksum)->Apply(sizes);

}  // namespace
}  // namespace terrace
