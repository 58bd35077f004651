#include "common/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>

namespace terrace {
namespace {

using Wide = unsigned __int128;  // a 64-bit count times a unit, without a case for overflow in between

struct Unit {
  std::string_view name;
  std::uint64_t count;
};

constexpr std::array<Unit, 5> kSizeUnits = {
    {{"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20}, {"K", 1ull << 10}, {"", 1}}};
constexpr std::array<Unit, 6> kTimeUnits = {{{"h", 3'600'000'000'000},
                                             {"m", 60'000'000'000},
                                             {"s", 1'000'000'000},
                                             {"ms", 1'000'000},
                                             {"us", 1'000},
                                             {"ns", 1}}};

struct Decimal {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;        // digits after the point as a number
  std::uint64_t fraction_scale = 1;  // 10^digits
  std::string_view rest;             // what follows the number
};

std::optional<Decimal> split_decimal(std::string_view text, std::size_t max_fraction_digits) {
  Decimal d;
  const char* end = text.data() + text.size();
  auto [after, error] = std::from_chars(text.data(), end, d.whole);
  if (error != std::errc()) return std::nullopt;
  if (after != end && *after == '.') {
    const char* first = after + 1;
    for (after = first; after != end && *after >= '0' && *after <= '9'; ++after) {
      d.fraction = d.fraction * 10 + static_cast<std::uint64_t>(*after - '0');
      d.fraction_scale *= 10;
      if (static_cast<std::size_t>(after - first) >= max_fraction_digits) return std::nullopt;
    }
    if (after == first) return std::nullopt;
  }
  d.rest = std::string_view(after, static_cast<std::size_t>(end - after));
  return d;
}

// The decimal in units of `unit`, or nothing when it exceeds `max`.
std::optional<std::uint64_t> scale(const Decimal& d, std::uint64_t unit, std::uint64_t max) {
  const Wide count = static_cast<Wide>(d.whole) * unit + static_cast<Wide>(d.fraction) * unit / d.fraction_scale;
  if (count > max) return std::nullopt;
  return static_cast<std::uint64_t>(count);
}

std::optional<std::uint64_t> size_unit(std::string_view suffix) {
  if (suffix.ends_with("iB") && suffix.size() > 2) {
    suffix.remove_suffix(2);
  } else if (suffix.ends_with('B')) {
    suffix.remove_suffix(1);
  }
  if (suffix.empty()) return 1;
  for (const Unit& u : kSizeUnits)
    if (suffix == u.name || (suffix.size() == 1 && !u.name.empty() && suffix[0] == (u.name[0] | 0x20))) return u.count;
  return std::nullopt;
}

std::string one_decimal(double value, std::string_view unit) {
  std::string digits = fmt::format("{:.1f}", value);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits.append(unit);
}

// The largest unit that `count` fills at least once.
const Unit& largest_unit(std::span<const Unit> units, std::uint64_t count) {
  for (const Unit& u : units)
    if (count >= u.count) return u;
  return units.back();
}

std::string exact(std::span<const Unit> units, std::uint64_t count) {
  for (const Unit& u : units)
    if (count >= u.count && count % u.count == 0) return fmt::format("{}{}", count / u.count, u.name);
  return fmt::format("{}{}", count, units.back().name);
}

}  // namespace

Result<Bytes> parse_size(std::string_view text) {
  constexpr std::string_view kHow = "a size is written 24G, 1.5G, 512M, 64K or as bytes";
  const auto decimal = split_decimal(text, 6);
  const auto unit = decimal ? size_unit(decimal->rest) : std::nullopt;
  if (!unit) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a size; {}", text, kHow));
  const auto bytes = scale(*decimal, *unit, std::numeric_limits<std::uint64_t>::max());
  if (!bytes) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is 2^64 bytes or more", text));
  return Bytes{*bytes};
}

std::string format_size(std::uint64_t bytes) {
  const Unit& unit = largest_unit(kSizeUnits, bytes);
  if (unit.count == 1) return fmt::format("{}B", bytes);
  return one_decimal(static_cast<double>(bytes) / static_cast<double>(unit.count), unit.name);
}

std::string format_size_exact(Bytes size) { return exact(kSizeUnits, size.value); }

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  constexpr std::string_view kHow = "a time is written 20ms, 1.5s, 250us, 2m or 1h";
  const auto decimal = split_decimal(text, 9);
  std::optional<std::uint64_t> unit;
  if (decimal) {
    for (const Unit& u : kTimeUnits)
      if (decimal->rest == u.name) unit = u.count;
    if (decimal->rest.empty() && decimal->whole == 0 && decimal->fraction == 0) unit = 1;
  }
  if (!unit) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a time; {}", text, kHow));
  const auto ns = scale(*decimal, *unit, std::numeric_limits<std::int64_t>::max());
  if (!ns) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is longer than 292 years", text));
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*ns));
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const bool negative = duration.count() < 0;
  const std::uint64_t ns =
      negative ? 0 - static_cast<std::uint64_t>(duration.count()) : static_cast<std::uint64_t>(duration.count());
  const Unit& unit = largest_unit(kTimeUnits, ns);
  const std::string text = one_decimal(static_cast<double>(ns) / static_cast<double>(unit.count), unit.name);
  return negative ? "-" + text : text;
}

std::string format_duration_exact(std::chrono::nanoseconds duration) {
  return exact(kTimeUnits, static_cast<std::uint64_t>(duration.count()));
}

}  // namespace terrace
