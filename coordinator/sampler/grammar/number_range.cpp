#include "coordinator/sampler/grammar/number_range.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace terrace::sampler::grammar {
namespace {

using Maybe = std::optional<Expression>;
using Integer = std::int64_t;

constexpr Integer kLargestInteger = 999'999'999'999'999'999;
constexpr std::size_t kMaxDigits = 15;  // any two decimals of so many digits are different doubles
constexpr std::size_t kUsualFraction = 6;

Expression digit_range(int low, int high) {
  return characters({{static_cast<char32_t>('0' + low), static_cast<char32_t>('0' + high)}});
}
Expression digit(int value) { return literal(std::string(1, static_cast<char>('0' + value))); }
Expression any_digits(std::size_t min, std::size_t max) {
  return repeat(digit_range(0, 9), static_cast<std::uint32_t>(min), static_cast<std::uint32_t>(max));
}

class Alternatives {
 public:
  void add(Maybe e) {
    if (e) children_.push_back(std::move(*e));
  }
  Maybe take() {
    if (children_.empty()) return std::nullopt;
    if (children_.size() == 1) return std::move(children_.front());
    return with_children(Expression::Kind::kAlternatives, std::move(children_));
  }

 private:
  std::vector<Expression> children_;
};

Maybe then(Expression first, Maybe rest) {
  if (!rest) return std::nullopt;
  return sequence(std::move(first), std::move(*rest));
}

// Digits [at, end) of numbers of equal length between low and high; at_low: all digits before are those of low.
Expression same_length(const std::string& low, const std::string& high, std::size_t at, bool at_low, bool at_high) {
  if (at == low.size()) return sequence();
  if (!at_low && !at_high) return any_digits(low.size() - at, low.size() - at);
  const int first = at_low ? low[at] - '0' : 0;
  const int last = at_high ? high[at] - '0' : 9;
  if (first == last) return sequence(digit(first), same_length(low, high, at + 1, at_low, at_high));
  Expression all;
  all.kind = Expression::Kind::kAlternatives;
  const int free_first = at_low ? first + 1 : first;
  const int free_last = at_high ? last - 1 : last;
  if (at_low) all.children.push_back(sequence(digit(first), same_length(low, high, at + 1, true, false)));
  if (free_first <= free_last)
    all.children.push_back(
        sequence(digit_range(free_first, free_last), any_digits(low.size() - at - 1, low.size() - at - 1)));
  if (at_high) all.children.push_back(sequence(digit(last), same_length(low, high, at + 1, false, true)));
  return all;
}

// 0 <= low, high <= kLargestInteger.
Maybe natural_range(Integer low, Integer high) {
  Alternatives all;
  const std::size_t most = std::to_string(high).size();
  for (std::size_t n = std::to_string(low).size(); n <= most && low <= high; ++n) {
    const std::string first = n == std::to_string(low).size() ? std::to_string(low) : "1" + std::string(n - 1, '0');
    const std::string last = n == most ? std::to_string(high) : std::string(n, '9');
    all.add(same_length(first, last, 0, true, true));
  }
  return all.take();
}

// The least integer that is not below a minimum (sign 1), or the negative of the largest not above a maximum (sign -1).
Integer ceiling(const Bound& bound, int sign) {
  const Decimal& d = bound.value;
  const bool is_negative = sign > 0 ? d.is_negative : !d.is_negative;
  const std::size_t most = std::to_string(kLargestInteger).size();
  if (d.whole.size() > most) return is_negative ? -kLargestInteger : kLargestInteger + 1;
  const Integer magnitude = std::stoll(d.whole);
  if (!d.fraction.empty()) return is_negative ? -magnitude : magnitude + 1;
  return (is_negative ? -magnitude : magnitude) + (bound.is_exclusive ? 1 : 0);
}

// ---- numbers with a fraction ----------------------------------------------------------------------------------------

// What is left of a bound on a magnitude, 0 or more.
struct Limit {
  Integer whole = 0;
  std::string fraction;  // padded with zeros to the most digits
  bool is_exclusive = false;
};

class FractionRange {
 public:
  // Either may be null: no limit on that side.
  FractionRange(const Limit* low, const Limit* high, std::size_t max_digits)
      : low_(low), high_(high), max_digits_(max_digits) {}

  // "" or "." and digits.
  Maybe make() const {
    Alternatives all;
    if (may_stop(0, low_ != nullptr, high_ != nullptr)) all.add(sequence());
    all.add(then(literal("."), next(0, low_ != nullptr, high_ != nullptr)));
    return all.take();
  }

 private:
  // Whether digits that end at `at` are within the limits; missing ones are zeros.
  bool may_stop(std::size_t at, bool at_low, bool at_high) const {
    const auto all_zero = [at](const std::string& digits) {
      return digits.find_first_not_of('0', at) == std::string::npos;
    };
    if (at_low && (!all_zero(low_->fraction) || low_->is_exclusive)) return false;
    return !at_high || !all_zero(high_->fraction) || !high_->is_exclusive;
  }

  Maybe next(std::size_t at, bool at_low, bool at_high) const {
    if (at == max_digits_) return std::nullopt;
    const int first = at_low ? low_->fraction[at] - '0' : 0;
    const int last = at_high ? high_->fraction[at] - '0' : 9;
    Alternatives all;
    for (int d = first; d <= last;) {
      const bool still_low = at_low && d == first;
      const bool still_high = at_high && d == last;
      // Digits between the limits are alike.
      const int end = still_low || still_high ? d : (at_high ? last - 1 : last);
      all.add(then(digit_range(d, end), rest(at + 1, still_low, still_high)));
      d = end + 1;
    }
    return all.take();
  }

  Maybe rest(std::size_t at, bool at_low, bool at_high) const {
    if (!at_low && !at_high) return any_digits(0, max_digits_ - at);
    Alternatives all;
    if (may_stop(at, at_low, at_high)) all.add(sequence());
    all.add(next(at, at_low, at_high));
    return all.take();
  }

  const Limit* low_;
  const Limit* high_;
  std::size_t max_digits_;
};

Maybe magnitude_range(const Limit& low, const Limit& high, std::size_t max_digits) {
  if (low.whole > high.whole) return std::nullopt;
  const auto whole = [](Integer value) { return literal(std::to_string(value)); };
  if (low.whole == high.whole) return then(whole(low.whole), FractionRange(&low, &high, max_digits).make());
  Alternatives all;
  all.add(then(whole(low.whole), FractionRange(&low, nullptr, max_digits).make()));
  if (Maybe between = natural_range(low.whole + 1, high.whole - 1))
    all.add(then(std::move(*between), FractionRange(nullptr, nullptr, max_digits).make()));
  all.add(then(whole(high.whole), FractionRange(nullptr, &high, max_digits).make()));
  return all.take();
}

Limit limit(const Bound& bound, std::size_t max_digits) {
  std::string fraction = bound.value.fraction;
  fraction.resize(max_digits, '0');
  return {std::stoll(bound.value.whole), std::move(fraction), bound.is_exclusive};
}

}  // namespace

std::optional<Expression> integer_range(const std::optional<Bound>& minimum, const std::optional<Bound>& maximum) {
  const Integer low = std::max(minimum ? ceiling(*minimum, 1) : -kLargestInteger, -kLargestInteger);
  const Integer high = std::min(maximum ? -ceiling(*maximum, -1) : kLargestInteger, kLargestInteger);
  if (low > high) return std::nullopt;
  Alternatives all;
  if (low < 0) all.add(then(literal("-"), natural_range(std::max<Integer>(1, -high), -low)));
  if (high >= 0) all.add(natural_range(std::max<Integer>(0, low), high));
  return all.take();
}

Result<std::optional<Expression>> number_range(const std::optional<Bound>& minimum,
                                               const std::optional<Bound>& maximum) {
  const Bound largest{{false, "1000000000", ""}, true};
  const Bound smallest{{true, "1000000000", ""}, true};
  const Bound low = minimum.value_or(smallest);
  const Bound high = maximum.value_or(largest);
  constexpr std::size_t kUsualWhole = 9;  // digits of what is below the usual bounds
  const auto whole_digits = [](const std::optional<Bound>& b) { return b ? b->value.whole.size() : kUsualWhole; };
  const std::size_t whole = std::max(whole_digits(minimum), whole_digits(maximum));
  const std::size_t fraction = std::max(low.value.fraction.size(), high.value.fraction.size());
  if (whole + fraction > kMaxDigits)
    return Error(ErrorCode::kUnsupported, "bounds of more than 15 digits cannot be held for numbers");
  const std::size_t max_digits = std::max(fraction, std::min(kUsualFraction, kMaxDigits - whole));

  const Limit zero{0, std::string(max_digits, '0'), false};
  const Limit above_zero{0, std::string(max_digits, '0'), true};
  Alternatives all;
  if (low.value.is_negative) {
    const Limit least = high.value.is_negative ? limit(high, max_digits) : above_zero;
    all.add(then(literal("-"), magnitude_range(least, limit(low, max_digits), max_digits)));
  }
  if (!high.value.is_negative)
    all.add(
        magnitude_range(low.value.is_negative ? zero : limit(low, max_digits), limit(high, max_digits), max_digits));
  return all.take();
}

}  // namespace terrace::sampler::grammar
