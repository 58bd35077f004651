#include "common/base/option_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

namespace terrace {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "OptionRange must hold every 64-bit integer");

template <class T>
struct Element {
  using type = T;
  static constexpr bool kOptional = false, kList = false;
};
template <class T>
struct Element<std::optional<T>> {
  using type = T;
  static constexpr bool kOptional = true, kList = false;
};
template <class T>
struct Element<std::vector<T>> {
  using type = T;
  static constexpr bool kOptional = false, kList = true;
};

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// Calls fn(object) with what a pointer target points to.
template <class ForChoice, class ForObject>
auto visit_target(const OptionTarget& target, ForChoice for_choice, ForObject for_object) {
  return std::visit(
      [&](const auto& t) {
        if constexpr (std::is_same_v<std::decay_t<decltype(t)>, ChoiceTarget>) {
          return for_choice(t);
        } else {
          return for_object(*t);
        }
      },
      target);
}

template <class T>
std::string allowed(const std::optional<OptionRange>& range) {
  if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_integral_v<T>) {
    const long double low = range ? range->low : static_cast<long double>(std::numeric_limits<T>::min());
    const long double high = range ? range->high : static_cast<long double>(std::numeric_limits<T>::max());
    return fmt::format("a whole number from {:.0f} to {:.0f}", low, high);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!range) return "a finite number";
    return fmt::format("a number from {} to {}", static_cast<double>(range->low), static_cast<double>(range->high));
  } else if constexpr (std::is_same_v<T, Bytes>) {
    if (!range) return "a size such as 24G or 512M";
    return fmt::format("a size from {} to {}", format_size(static_cast<std::uint64_t>(range->low)),
                       format_size(static_cast<std::uint64_t>(range->high)));
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    if (!range) return "a time such as 20ms";
    return fmt::format("a time from {} to {}",
                       format_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(range->low))),
                       format_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(range->high))));
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return "a file name";
  } else {
    return "text";
  }
}

template <class T>
long double as_number(const T& value) {
  if constexpr (std::is_same_v<T, Bytes>) {
    return static_cast<long double>(value.value);
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    return static_cast<long double>(value.count());
  } else {
    return static_cast<long double>(value);
  }
}

std::optional<bool> parse_bool(const std::string& text) {
  for (const char* yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (const char* no : {"false", "0", "no", "off"})
    if (text == no) return false;
  return std::nullopt;
}

template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || after != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

// The value, nothing where the text is not one, or an error that already says how such values are written.
template <class T>
Result<std::optional<T>> parse_unbounded(const std::string& text) {
  if constexpr (std::is_same_v<T, bool>) {
    return parse_bool(text);
  } else if constexpr (kIsNumber<T>) {
    return parse_number<T>(text);
  } else if constexpr (std::is_same_v<T, Bytes>) {
    TERRACE_ASSIGN_OR_RETURN(const Bytes size, parse_size(text));
    return std::optional<T>(size);
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    TERRACE_ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, parse_duration(text));
    return std::optional<T>(time);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return text.empty() ? std::nullopt : std::optional<T>(text);
  } else {
    return std::optional<T>(text);
  }
}

template <class T>
Result<T> parse_value(const std::string& text, const std::optional<OptionRange>& range) {
  TERRACE_ASSIGN_OR_RETURN(std::optional<T> value, parse_unbounded<T>(text));
  bool inside = value.has_value();
  if constexpr (kIsNumber<T> || std::is_same_v<T, Bytes> || std::is_same_v<T, std::chrono::nanoseconds>) {
    if (inside && range) inside = as_number(*value) >= range->low && as_number(*value) <= range->high;
  }
  if (!inside) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not {}", text, allowed<T>(range)));
  return std::move(*value);
}

Status set_choice(const ChoiceTarget& choice, const std::string& text) {
  for (std::size_t i = 0; i < choice.names.size(); ++i) {
    if (choice.names[i] != text) continue;
    choice.set(i);
    return {};
  }
  return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not one of {}", text, fmt::join(choice.names, ", ")));
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

template <class T>
std::string plain(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (kIsNumber<T>) {
    return fmt::format("{}", value);
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return format_size_exact(value);
  } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
    return format_duration_exact(value);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return value.string();
  } else {
    return value;
  }
}

template <class T>
std::string written(const T& value, bool toml) {
  return toml && !std::is_arithmetic_v<T> ? toml_string(plain(value)) : plain(value);
}

template <class Object>
std::optional<std::string> object_text(const Object& object, bool toml) {
  if constexpr (Element<Object>::kList) {
    if (object.empty()) return std::nullopt;
    std::vector<std::string> items;
    items.reserve(object.size());
    for (const auto& item : object) items.push_back(written(item, toml));
    const std::string joined = fmt::format("{}", fmt::join(items, ", "));
    return toml ? "[" + joined + "]" : joined;
  } else if constexpr (Element<Object>::kOptional) {
    if (!object) return std::nullopt;
    return written(*object, toml);
  } else {
    std::string text = written(object, toml);
    if (plain(object).empty()) return std::nullopt;
    return text;
  }
}

std::optional<std::string> target_text(const OptionTarget& target, bool toml) {
  return visit_target(
      target,
      [toml](const ChoiceTarget& choice) -> std::optional<std::string> {
        const std::optional<std::size_t> i = choice.selected();
        if (!i) return std::nullopt;
        return written(choice.names[*i], toml);
      },
      [toml](const auto& object) { return object_text(object, toml); });
}

}  // namespace

bool is_flag(const OptionTarget& target) {
  return std::holds_alternative<bool*>(target) || std::holds_alternative<std::optional<bool>*>(target);
}

bool is_repeatable(const OptionTarget& target) {
  return visit_target(
      target, [](const ChoiceTarget&) { return false; },
      [](const auto& object) { return Element<std::decay_t<decltype(object)>>::kList; });
}

Status set_target(const OptionTarget& target, const std::optional<OptionRange>& range,
                  const std::vector<std::string>& texts) {
  return visit_target(
      target, [&](const ChoiceTarget& choice) { return set_choice(choice, texts.back()); },
      [&](auto& object) -> Status {
        using Object = std::decay_t<decltype(object)>;
        using T = typename Element<Object>::type;
        if constexpr (Element<Object>::kList) {
          Object values;
          for (const std::string& text : texts) {
            TERRACE_ASSIGN_OR_RETURN(T value, parse_value<T>(text, range));
            values.push_back(std::move(value));
          }
          object = std::move(values);
        } else {
          TERRACE_ASSIGN_OR_RETURN(T value, parse_value<T>(texts.back(), range));
          object = std::move(value);
        }
        return {};
      });
}

std::string describe_allowed(const OptionTarget& target, const std::optional<OptionRange>& range) {
  return visit_target(
      target, [](const ChoiceTarget& choice) { return fmt::format("one of {}", fmt::join(choice.names, ", ")); },
      [&](const auto& object) { return allowed<typename Element<std::decay_t<decltype(object)>>::type>(range); });
}

std::string describe_range(const OptionTarget& target, const OptionRange& range) {
  constexpr long double kFar = 1e6L;
  return visit_target(
      target, [](const ChoiceTarget&) { return std::string(); },
      [&](const auto& object) -> std::string {
        using T = typename Element<std::decay_t<decltype(object)>>::type;
        if constexpr (!kIsNumber<T>) {
          return allowed<T>(range);
        } else {
          const auto low = static_cast<double>(range.low);
          if (range.high < kFar) return fmt::format("{:g} to {:g}", low, static_cast<double>(range.high));
          return range.low > -kFar ? fmt::format("at least {:g}", low) : "";
        }
      });
}

std::optional<std::string> target_as_toml(const OptionTarget& target) { return target_text(target, true); }
std::optional<std::string> target_as_text(const OptionTarget& target) { return target_text(target, false); }

std::string default_value_name(const OptionTarget& target) {
  return visit_target(
      target, [](const ChoiceTarget& choice) { return fmt::format("{}", fmt::join(choice.names, "|")); },
      [](const auto& object) -> std::string {
        using T = typename Element<std::decay_t<decltype(object)>>::type;
        if constexpr (std::is_same_v<T, bool>) return "";
        if constexpr (std::is_integral_v<T>) return "N";
        if constexpr (std::is_floating_point_v<T>) return "X";
        if constexpr (std::is_same_v<T, Bytes>) return "SIZE";
        if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) return "TIME";
        if constexpr (std::is_same_v<T, std::filesystem::path>) return "FILE";
        return "TEXT";
      });
}

}  // namespace terrace
