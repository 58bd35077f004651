// Comparing secrets without telling by time how far they agree.
#pragma once

#include <cstddef>
#include <span>

namespace terrace::security {

// True if both have the same bytes. The time depends on their lengths only.
bool constant_time_equal(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace terrace::security
