#include "kernels/cuda/experts/writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace terrace::kernels::cuda {

Result<std::unique_ptr<CudaWriter>> CudaWriter::make(const Card& card) {
  TERRACE_ASSIGN_OR_RETURN(Stream stream, card.make_stream());
  const auto make_buffer = [&]() -> Result<Buffer> {
    TERRACE_ASSIGN_OR_RETURN(PinnedBuffer memory, card.make_pinned(kBufferBytes));
    TERRACE_ASSIGN_OR_RETURN(Event free, card.make_event());
    return Buffer{std::move(memory), std::move(free)};
  };
  TERRACE_ASSIGN_OR_RETURN(Buffer first, make_buffer());
  TERRACE_ASSIGN_OR_RETURN(Buffer second, make_buffer());
  return std::unique_ptr<CudaWriter>(new CudaWriter(std::move(stream), {std::move(first), std::move(second)}));
}

CudaWriter::CudaWriter(Stream stream, std::array<Buffer, 2> buffers)
    : stream_(std::move(stream)), buffers_(std::move(buffers)) {}

// After a failed write a copy may still be reading.
CudaWriter::~CudaWriter() { (void)stream_.synchronize(); }

Status CudaWriter::write(std::byte* to, std::span<const std::byte> data) {
  for (std::size_t turn = 0; !data.empty(); ++turn) {
    Buffer& buffer = buffers_[turn % 2];
    if (turn >= 2) TERRACE_RETURN_IF_ERROR(buffer.free.synchronize());
    const std::size_t part = std::min(kBufferBytes, data.size());
    std::memcpy(buffer.memory.data(), data.data(), part);
    TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(to, buffer.memory.data(), part));
    TERRACE_RETURN_IF_ERROR(stream_.record(buffer.free));
    to += part;
    data = data.subspan(part);
  }
  return stream_.synchronize();
}

}  // namespace terrace::kernels::cuda
