#include "coordinator/legs/slab_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/base/descriptor.h"
#include "common/manifest/slab.h"

namespace terrace::legs {
namespace {

constexpr std::uint64_t kAlign = SlabReader::kAlignment;

constexpr std::uint64_t round_down(std::uint64_t bytes) { return bytes / kAlign * kAlign; }
constexpr std::uint64_t round_up(std::uint64_t bytes) { return round_down(bytes + kAlign - 1); }
// Wherever a part begins in the file: the blocks that it lies in.
constexpr std::uint64_t most_blocks(std::uint64_t bytes) { return round_up(bytes) + kAlign; }

// The open file again, by its descriptor and not by its name: that may be another file's by now.
Descriptor open_direct(int fd) {
  return Descriptor(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
}

class FileSlabReader final : public SlabReader {
 public:
  FileSlabReader(const gguf::File& file, const manifest::ModelExperts& experts, bool direct)
      : file_(file), experts_(experts), slot_bytes_(slab_slot_bytes(experts)) {
    if (!direct) {
      describe_ = "through the page cache, as asked for";
      return;
    }
    for (std::uint32_t shard = 0; shard < file.n_shards(); ++shard) {
      direct_.push_back(open_direct(file.fd(shard)));
      if (direct_.back().get() < 0) refuse(shard, errno);
    }
  }

  void use_page_cache() override { uses_page_cache_ = true; }
  std::uint64_t bytes_from_memory() const override { return from_memory_; }
  std::size_t slot_bytes() const override { return slot_bytes_; }
  const std::string& describe() const override { return describe_; }

  Result<kernels::SlabView> read(std::uint32_t layer, std::uint16_t expert, std::span<std::byte> slot) override {
    TERRACE_CHECK(layer < experts_.layers.size() && expert < experts_.n_experts, "a slab that the model does not have");
    TERRACE_CHECK(slot.size() >= slot_bytes_ && reinterpret_cast<std::uintptr_t>(slot.data()) % kAlign == 0,
                  "a slot that is too small or not aligned");
    const manifest::LayerExperts& parts = experts_.layers[layer];
    kernels::SlabView view;
    TERRACE_ASSIGN_OR_RETURN(view.gate, read_part(parts.gate, expert, slot));
    TERRACE_ASSIGN_OR_RETURN(view.up, read_part(parts.up, expert, slot));
    TERRACE_ASSIGN_OR_RETURN(view.down, read_part(parts.down, expert, slot));
    return view;
  }

 private:
  bool is_direct(std::uint32_t shard) const { return !direct_.empty() && direct_[shard].get() >= 0; }
  void refuse(std::uint32_t shard, int reason) {
    direct_.clear();
    describe_ = fmt::format("through the page cache, for {} cannot be read directly ({})", file_.path(shard).string(),
                            std::generic_category().message(reason));
  }

  // Whether all of it was there. Waits for no drive and reads nothing ahead.
  bool copy_from_memory(const manifest::PartLocation& part, std::uint64_t at, std::span<std::byte> out) {
    for (std::uint64_t done = 0; done < part.bytes;) {
      iovec to{out.data() + done, part.bytes - done};
      const ::ssize_t n = ::preadv2(file_.fd(part.shard), &to, 1, static_cast<::off_t>(at + done), RWF_NOWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EOPNOTSUPP) uses_page_cache_ = false;  // this file system cannot tell
      if (n <= 0) return false;
      done += static_cast<std::uint64_t>(n);
    }
    return true;
  }

  // Where the part begins in `slot`; takes the blocks that it lies in off the slot's front.
  Result<const std::byte*> read_part(const manifest::PartLocation& part, std::uint16_t expert,
                                     std::span<std::byte>& slot) {
    const std::uint64_t begin = part.file_offset + expert * part.stride;
    const std::uint64_t first = round_down(begin);
    const std::uint64_t need = begin + part.bytes - first;  // bytes from the first block's begin
    const std::span<std::byte> out = slot.first(round_up(need));
    slot = slot.subspan(out.size());
    if (uses_page_cache_ && is_direct(part.shard) && copy_from_memory(part, begin, out.subspan(begin - first))) {
      from_memory_ += part.bytes;
      return out.data() + (begin - first);
    }
    std::uint64_t done = 0;
    while (done < need) {
      // A direct read goes on at whole blocks; behind the file's end it gives what there is.
      const std::uint64_t at = round_down(done);
      const int fd = is_direct(part.shard) ? direct_[part.shard].get() : file_.fd(part.shard);
      const ::ssize_t n = ::pread(fd, out.data() + at, out.size() - at, static_cast<::off_t>(first + at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EINVAL && is_direct(part.shard)) {
        refuse(part.shard, errno);  // opened, but not read: some file systems say it only now
        continue;
      }
      if (n < 0)
        return manifest::slab_read_error(file_, part, first + at, std::generic_category().message(errno),
                                         ErrorCode::kIo);
      if (at + static_cast<std::uint64_t>(n) <= done)
        return manifest::slab_read_error(file_, part, first + done, "the file has become shorter", ErrorCode::kCorrupt);
      done = at + static_cast<std::uint64_t>(n);
    }
    return out.data() + (begin - first);
  }

  const gguf::File& file_;
  const manifest::ModelExperts& experts_;
  const std::size_t slot_bytes_;
  std::vector<Descriptor> direct_;  // [shards]; empty: all are read through the page cache
  std::string describe_ = "direct I/O";
  bool uses_page_cache_ = false;
  std::uint64_t from_memory_ = 0;
};

}  // namespace

std::size_t slab_slot_bytes(const manifest::ModelExperts& experts) {
  std::uint64_t most = kAlign;
  for (const manifest::LayerExperts& layer : experts.layers)
    if (layer.shape.n_experts > 0)
      most =
          std::max(most, most_blocks(layer.gate.bytes) + most_blocks(layer.up.bytes) + most_blocks(layer.down.bytes));
  return most;
}

std::unique_ptr<SlabReader> open_slab_reader(const gguf::File& file, const manifest::ModelExperts& experts,
                                             bool direct) {
  return std::make_unique<FileSlabReader>(file, experts, direct);
}

}  // namespace terrace::legs
