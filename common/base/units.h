// Sizes and times as people write them: 24G, 512M, 1.5G; 20ms, 1.5s.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace terrace {

// A number of bytes. Its own type, so that an option of it reads "24G" and no count of something else gets in.
struct Bytes {
  std::uint64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
};

// "24G", "1.5G", "512M", "64K", "2T", "4096": K, M, G, T are powers of 1024, either case, "iB" or "B" may follow.
// At most six digits after the point; a fraction of a byte is dropped.
// kInvalidArgument: empty, negative, trailing characters, no number, 2^64 bytes or more; the text quotes `text`.
Result<Bytes> parse_size(std::string_view text);
// For people, at most one decimal: "61.4G", "512M", "0B".
std::string format_size(std::uint64_t bytes);
// parse_size() gives back exactly `size`: "24G", "1536M", "1000".
std::string format_size_exact(Bytes size);

// "20ms", "1.5s", "250us", "100ns", "2m", "1h"; the unit may be left out only of 0. At most nine digits after the
// point; a fraction of a nanosecond is dropped.
// kInvalidArgument: as parse_size, or 2^63 nanoseconds (292 years) and more.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);
// For people, at most one decimal: "20ms", "1.5s", "4.2m".
std::string format_duration(std::chrono::nanoseconds duration);
// parse_duration() gives back exactly `duration`, which is not negative: "20ms", "1500us".
std::string format_duration_exact(std::chrono::nanoseconds duration);

}  // namespace terrace
