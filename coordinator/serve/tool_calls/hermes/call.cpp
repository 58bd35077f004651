#include "coordinator/serve/tool_calls/hermes/call.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace terrace::serve::tool_calls {
namespace {

using Scan = JsonScanner::State;

// The content of a JSON string. None: a lone surrogate, which the scanner lets pass.
std::optional<std::string> unquoted(std::string_view text) {
  const auto value = nlohmann::json::parse(text, nullptr, false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

}  // namespace

std::size_t HermesCall::push(std::string_view text, std::vector<Delta>& deltas) {
  std::size_t taken = 0;
  std::string streamed;
  while (taken < text.size() && state_ == State::kOpen) {
    const bool was_streaming = streaming_;
    feed(text[taken], deltas);
    if (state_ == State::kOpen && (was_streaming || streaming_)) streamed += text[taken];
    // The last byte of the arguments was fed with streaming_ on; all that came belongs to one delta.
    if (was_streaming && !streaming_) give_arguments(std::exchange(streamed, {}), deltas);
    ++taken;
  }
  give_arguments(std::move(streamed), deltas);
  return taken;
}

void HermesCall::feed(char byte, std::vector<Delta>& deltas) {
  const Scan before = scanner_.state();
  const std::size_t depth = scanner_.depth();
  if (before == Scan::kValue && depth == 0 && byte != '{' &&
      std::string_view(" \t\r\n").find(byte) == std::string_view::npos) {
    raw_ += byte;
    return fail();  // a call is an object
  }
  const Scan after = scanner_.feed(byte);
  raw_ += byte;
  if (after == Scan::kBad) {
    streaming_ = false;
    return fail();
  }
  if (depth == 1 && (before == Scan::kKey || before == Scan::kFirstKey) && after == Scan::kString)
    begin_ = raw_.size() - 1;
  if (depth == 1 && before == Scan::kString && after == Scan::kColon) {
    const auto key = unquoted(std::string_view(raw_).substr(begin_));
    field_ = key == "name" ? Field::kName : key == "arguments" ? Field::kArguments : Field::kOther;
  }
  if (depth == 1 && before == Scan::kValue && after != Scan::kValue) begin_value(byte, deltas);
  if (in_value_ && scanner_.depth() == 1 && after == Scan::kAfterValue) end_value(deltas);
  if (after == Scan::kDone) end_object(deltas);
}

void HermesCall::begin_value(char byte, std::vector<Delta>& deltas) {
  begin_ = raw_.size() - 1;
  in_value_ = field_ != Field::kOther;
  if (field_ == Field::kName && (byte != '"' || std::exchange(has_name_, true))) return fail();
  if (field_ != Field::kArguments) return;
  if ((byte != '{' && byte != '"') || std::exchange(has_arguments_, true)) return fail();
  if (byte != '{' || name_.empty()) return;
  give_name(deltas);
  streaming_ = true;  // push() gives what comes, this byte included
}

void HermesCall::end_value(std::vector<Delta>& deltas) {
  in_value_ = false;
  const std::string text = raw_.substr(begin_);
  if (field_ == Field::kName) {
    const auto name = unquoted(text);
    if (!name || name->empty()) return fail();
    name_ = *name;
    return;
  }
  if (std::exchange(streaming_, false)) return;
  const auto string = text.front() == '"' ? unquoted(text) : std::optional(text);
  if (!string) return fail();
  arguments_ = *string;
  if (name_.empty()) return;  // it comes later
  give_name(deltas);
  give_arguments(std::exchange(arguments_, {}), deltas);
}

void HermesCall::end_object(std::vector<Delta>& deltas) {
  if (!has_name_) return fail();
  state_ = State::kDone;
  if (given_) return;
  give_name(deltas);
  give_arguments(has_arguments_ ? std::move(arguments_) : "{}", deltas);
}

void HermesCall::give_name(std::vector<Delta>& deltas) {
  given_ = true;
  deltas.push_back({Delta::Kind::kCall, name_, index_});
}

void HermesCall::give_arguments(std::string text, std::vector<Delta>& deltas) {
  if (!text.empty()) deltas.push_back({Delta::Kind::kArguments, std::move(text), index_});
}

}  // namespace terrace::serve::tool_calls
