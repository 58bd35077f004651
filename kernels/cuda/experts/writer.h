// Host memory to card memory through two pinned buffers: while one is copied by the card the other is filled.
#pragma once

#include <array>

#include "kernels/card/expert_card.h"
#include "kernels/cuda/device/card.h"

namespace terrace::kernels::cuda {

class CudaWriter final : public CardWriter {
 public:
  // `card` outlives the writer.
  static Result<std::unique_ptr<CudaWriter>> make(const Card& card);
  ~CudaWriter() override;
  Status write(std::byte* to, std::span<const std::byte> data) override;

 private:
  // Both stay in a core's cache: what is filled goes to the card without a trip through memory, whose rate is otherwise
  // the limit of loading from the page cache.
  static constexpr std::size_t kBufferBytes = std::size_t{512} << 10;
  struct Buffer {
    PinnedBuffer memory;
    Event free;  // its last copy is done
  };
  CudaWriter(Stream stream, std::array<Buffer, 2> buffers);

  Stream stream_;
  std::array<Buffer, 2> buffers_;
};

}  // namespace terrace::kernels::cuda
