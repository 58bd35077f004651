#include "coordinator/app/pages.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "common/base/units.h"

namespace terrace::app {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

Result<Pages> Pages::map(std::size_t bytes, bool huge) {
  void* const mapping = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("the system gives no {} of memory: {}", format_size(bytes), std::strerror(errno)));
  Pages pages(static_cast<std::byte*>(mapping), bytes);
  pages.advised_ = madvise(pages.data(), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
  return pages;
}

Pages::Pages(Pages&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)), bytes_(other.bytes_), advised_(other.advised_) {}

Pages::~Pages() {
  if (mapping_ != nullptr) munmap(mapping_, bytes_ + kHugePage);
}

std::byte* Pages::data() const {
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  return mapping_ + (kHugePage - address % kHugePage) % kHugePage;
}

// Of the mappings that overlap ours, as /proc/self/smaps tells.
std::uint64_t Pages::huge_bytes() const {
  if (!advised_) return 0;
  const auto first = reinterpret_cast<std::uintptr_t>(data());
  std::ifstream smaps("/proc/self/smaps");
  std::uint64_t sum = 0;
  bool ours = false;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::uintptr_t low = 0, high = 0;
    char dash = 0;
    if (words >> std::hex >> low >> dash >> high && dash == '-') {
      ours = low < first + bytes_ && first < high;
    } else if (ours && line.starts_with("AnonHugePages:")) {
      sum += std::strtoull(line.c_str() + std::strlen("AnonHugePages:"), nullptr, 10) * 1024;
    }
  }
  return sum;
}

}  // namespace terrace::app
