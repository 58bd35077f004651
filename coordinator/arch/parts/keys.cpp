#include "coordinator/arch/parts/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace terrace::arch {
namespace {

std::string text(const CountRange& range) {
  if (range.most == CountRange{}.most) return fmt::format("at least {} is allowed", range.least);
  return fmt::format("{} to {} is allowed", range.least, range.most);
}

bool is_float(gguf::ValueType type) { return type == gguf::ValueType::kF32 || type == gguf::ValueType::kF64; }

bool floats_finite(const gguf::Value& value) {
  if (!value.is_array()) return !is_float(value.type) || std::isfinite(*value.floating());
  if (!is_float(value.element)) return true;
  for (std::uint64_t i = 0; i < value.count; ++i)
    if (!std::isfinite(*value.at(i).floating())) return false;
  return true;
}

std::optional<double> number(const gguf::Value& value) {
  if (const auto b = value.boolean()) return *b ? 1.0 : 0.0;
  if (const auto i = value.integer<std::int64_t>()) return static_cast<double>(*i);
  return value.floating();
}

}  // namespace

Error Keys::bad(ErrorCode code, std::string_view suffix, std::string_view allowed) const {
  const gguf::Value* value = file_.find(name(suffix));
  return Error(code, fmt::format("{} is {}; {}", file_.key_place(name(suffix)),
                                 value == nullptr ? "missing" : value->text(), allowed));
}

Result<std::uint32_t> Keys::count(std::string_view suffix, CountRange range,
                                  std::optional<std::uint32_t> fallback) const {
  std::uint32_t value = fallback.value_or(0);
  if (!fallback || has(suffix)) {
    TERRACE_ASSIGN_OR_RETURN(value, file_.get_u32(name(suffix)));
  }
  // A fallback is computed from other keys of the file: it is as hostile as they are.
  if (value < range.least || value > range.most) return bad(ErrorCode::kCorrupt, suffix, text(range));
  return value;
}

Result<std::uint32_t> Keys::uniform_count(std::string_view suffix, std::uint32_t n_layers, CountRange range,
                                          std::optional<std::uint32_t> fallback) const {
  const gguf::Value* value = file_.find(name(suffix));
  if (value == nullptr || !value->is_array()) return count(suffix, range, fallback);
  TERRACE_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> layers, file_.get_u32s(name(suffix)));
  if (layers.size() != n_layers)
    return bad(ErrorCode::kCorrupt, suffix, fmt::format("one entry for each of {} layers is needed", n_layers));
  if (std::ranges::any_of(layers, [&](std::uint32_t n) { return n != layers[0]; }))
    return bad(ErrorCode::kUnsupported, suffix, "this build needs the same for every layer");
  if (layers[0] < range.least || layers[0] > range.most) return bad(ErrorCode::kCorrupt, suffix, text(range));
  return layers[0];
}

Result<float> Keys::positive(std::string_view suffix, std::optional<float> fallback) const {
  if (fallback && !has(suffix)) return *fallback;
  TERRACE_ASSIGN_OR_RETURN(const float value, file_.get_f32(name(suffix)));
  if (!std::isfinite(value) || value <= 0) return bad(ErrorCode::kCorrupt, suffix, "a finite number above 0 is needed");
  return value;
}

Status Keys::all_floats_finite() const {
  for (const gguf::KeyValue& entry : file_.metadata().entries()) {
    if (!entry.key.starts_with(prefix_ + ".") || floats_finite(entry.value)) continue;
    return bad(ErrorCode::kCorrupt, entry.key.substr(prefix_.size() + 1), "finite numbers are needed");
  }
  return {};
}

Status Keys::is_neutral(std::string_view suffix, double neutral) const {
  const gguf::Value* value = file_.find(name(suffix));
  if (value == nullptr || number(*value) == neutral) return {};
  return bad(ErrorCode::kUnsupported, suffix, fmt::format("this build runs {} models with {} only", prefix_, neutral));
}

}  // namespace terrace::arch
