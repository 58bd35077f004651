// What an option fills, and how text becomes its value. One parser for the command line, the environment and TOML.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "common/base/units.h"

namespace terrace {

// An enumeration by its names; made by OptionTable::add_choice().
struct ChoiceTarget {
  std::vector<std::string> names;
  std::function<void(std::size_t)> set;                  // index into names
  std::function<std::optional<std::size_t>()> selected;  // nothing: not set, or no named value
};

// Where the value goes. A pointer is borrowed and must outlive the table. Whatever it holds when the option is
// declared is the default; an optional that is empty reads "not set".
using OptionTarget =
    std::variant<bool*, std::int64_t*, std::uint64_t*, std::uint32_t*, std::int32_t*, std::uint16_t*, float*, double*,
                 std::string*, std::filesystem::path*, Bytes*, std::chrono::nanoseconds*, std::optional<bool>*,
                 std::optional<std::int64_t>*, std::optional<std::uint64_t>*, std::optional<std::uint32_t>*,
                 std::optional<std::int32_t>*, std::optional<std::uint16_t>*, std::optional<float>*,
                 std::optional<double>*, std::optional<std::string>*, std::optional<std::filesystem::path>*,
                 std::optional<Bytes>*, std::optional<std::chrono::nanoseconds>*, std::vector<std::string>*,
                 std::vector<std::filesystem::path>*, std::vector<std::uint32_t>*, ChoiceTarget>;

// The allowed values of a number, both ends included. long double holds every 64-bit integer and every double
// exactly on the machines we build for (64 bits of mantissa on x86-64, 113 on aarch64).
struct OptionRange {
  long double low = 0;
  long double high = 0;
};

bool is_flag(const OptionTarget& target);        // bool: takes no value on the command line
bool is_repeatable(const OptionTarget& target);  // a vector: every use adds one

// Parses `texts` (one, unless the target is repeatable) into the target; leaves it as it was when one is wrong.
// kInvalidArgument: the text quotes the value and says what is allowed, but not where the value came from.
// Numbers: decimal, the whole text; NaN and infinity are refused.
Status set_target(const OptionTarget& target, const std::optional<OptionRange>& range,
                  const std::vector<std::string>& texts);

// "a whole number from 0 to 1024", "a size from 1G to 8G", "one of f16, f32"; `range` narrows the type's own.
std::string describe_allowed(const OptionTarget& target, const std::optional<OptionRange>& range);
// The range as --help shows it, without limits that only catch slips: "0 to 1", "at least 1", perhaps nothing.
std::string describe_range(const OptionTarget& target, const OptionRange& range);

// The value the target holds now, as TOML (strings quoted), or nothing where it is not set (empty optionals, strings,
// paths and lists).
std::optional<std::string> target_as_toml(const OptionTarget& target);
// The same for people: no quotes.
std::optional<std::string> target_as_text(const OptionTarget& target);

// How the value is called in help unless the option says otherwise: "N", "X", "SIZE", "TIME", "TEXT", "FILE",
// "f16|f32"; empty for flags.
std::string default_value_name(const OptionTarget& target);

}  // namespace terrace
