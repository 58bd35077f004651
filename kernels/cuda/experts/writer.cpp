#include "kernels/cuda/experts/writer.h"

#include <algorithm>
#include <utility>

namespace terrace::kernels::cuda {

Result<std::unique_ptr<CudaWriter>> CudaWriter::make(const Card& card) {
  TERRACE_ASSIGN_OR_RETURN(Stream stream, card.make_stream());
  TERRACE_ASSIGN_OR_RETURN(PinnedBuffer memory, card.make_pinned(kPinnedBytes));
  std::vector<Event> copied;
  for (std::size_t i = 0; i < kPieces; ++i) {
    TERRACE_ASSIGN_OR_RETURN(Event event, card.make_event());
    copied.push_back(std::move(event));
  }
  return std::unique_ptr<CudaWriter>(new CudaWriter(std::move(stream), std::move(memory), std::move(copied)));
}

CudaWriter::CudaWriter(Stream stream, PinnedBuffer memory, std::vector<Event> copied)
    : stream_(std::move(stream)), memory_(std::move(memory)), copied_(std::move(copied)) {}

// After a failed write a copy may still be reading.
CudaWriter::~CudaWriter() { (void)stream_.synchronize(); }

Status CudaWriter::queue(std::byte* to, std::uint64_t bytes, Fill fill) {
  for (std::uint64_t at = 0; at < bytes; ++next_) {
    const std::size_t place = next_ % kPieces;
    if (next_ >= kPieces) TERRACE_RETURN_IF_ERROR(copied_[place].synchronize());
    const std::span<std::byte> piece{memory_.data() + place * kPieceBytes, std::min(kPieceBytes, bytes - at)};
    TERRACE_RETURN_IF_ERROR(fill(at, piece));
    TERRACE_RETURN_IF_ERROR(stream_.copy_to_card(to + at, piece.data(), piece.size()));
    TERRACE_RETURN_IF_ERROR(stream_.record(copied_[place]));
    at += piece.size();
  }
  return {};
}

Status CudaWriter::finish() { return stream_.synchronize(); }

}  // namespace terrace::kernels::cuda
