// Host memory, or a file, to card memory through a ring of pinned pieces: while some are on their way others are
// filled.
#pragma once

#include <memory>
#include <vector>

#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"

namespace terrace::kernels::cuda {

class CudaWriter final : public CardWriter {
 public:
  // `card` outlives the writer.
  static Result<std::unique_ptr<CudaWriter>> make(const Card& card);
  ~CudaWriter() override;
  using CardWriter::queue;
  Status queue(std::byte* to, std::uint64_t bytes, Fill fill) override;
  Status finish() override;

 private:
  static constexpr std::size_t kPieces = kPinnedBytes / kPieceBytes;
  CudaWriter(Stream stream, PinnedBuffer memory, std::vector<Event> copied);

  Stream stream_;
  PinnedBuffer memory_;        // [kPieces]
  std::vector<Event> copied_;  // [kPieces] the piece's last copy is done
  std::size_t next_ = 0;       // piece, counted on and on
};

}  // namespace terrace::kernels::cuda
