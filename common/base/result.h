// Errors are values: Result<T> holds a T or an Error, Status is Result<void>.
//
// A code is for programs, and exists only because some caller acts on it; the text is one sentence for people that
// says what failed, where (file, tensor, node, offset), found against allowed, and what to do. Nobody parses it.
// Exceptions of libraries end in the folder that uses the library. See docs/adr/0003-result-type.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace terrace {

enum class ErrorCode {
  kInvalidArgument,  // what the user asked for cannot be: exit code 2
  kNotFound,         // a file, key or tensor is not there
  kUnsupported,      // lawful, but not in this build or on this machine
  kCorrupt,          // bytes from a file or a peer break their format or their hash
  kOutOfMemory,      // a budget or the machine is too small; nothing was taken
  kBusy,             // try again later; nothing was done
  kStaleEpoch,       // the epoch is unknown or was forgotten: compute elsewhere
  kDeadline,         // a stated wait is over
  kPeerGone,         // the connection is closed or the peer is silent
  kRefused,          // the peer answered no: version, credentials, limits
  kNotFinite,        // an activation, logit or expert output is not finite or out of the fixed-point range
  kContextFull,      // the sequence is as long as the context
  kIo,               // the operating system refused; the text carries its reason
  kInternal,         // a bug of ours
  kUncertain,        // what was computed since some step may be wrong: forget that much and compute it again
};

// The code's name as written above without the k, for logs and JSON. Never null.
const char* name(ErrorCode code);

class Error {
 public:
  Error(ErrorCode code, std::string text) : code_(code), text_(std::move(text)) {}

  ErrorCode code() const { return code_; }
  const std::string& text() const { return text_; }

  // The same error with "where: " before its text. The layer that knows the object adds its name, once.
  Error in(std::string_view where) const { return Error(code_, std::string(where) + ": " + text_); }

 private:
  ErrorCode code_;
  std::string text_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Reading the value of a failed result is a bug of the caller and ends the process with the error's text.
  T& value() & {
    require();
    return std::get<0>(state_);
  }
  const T& value() const& {
    require();
    return std::get<0>(state_);
  }
  T&& value() && {
    require();
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    TERRACE_CHECK(!ok(), "error() of a result that is ok");
    return std::get<1>(state_);
  }

 private:
  void require() const { TERRACE_CHECK(ok(), std::get<1>(state_).text().c_str()); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    TERRACE_CHECK(!ok(), "error() of a status that is ok");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace terrace

// Leaves the enclosing function with the error of `expression`, if it has one.
#define TERRACE_RETURN_IF_ERROR(expression)                                                         \
  do {                                                                                              \
    if (auto terrace_status_ = (expression); !terrace_status_.ok()) return terrace_status_.error(); \
  } while (false)

#define TERRACE_CONCAT_INNER_(a, b) a##b
#define TERRACE_CONCAT_(a, b) TERRACE_CONCAT_INNER_(a, b)
// TERRACE_ASSIGN_OR_RETURN(auto x, f()): x is f's value, or the enclosing function returns f's error.
#define TERRACE_ASSIGN_OR_RETURN(declaration, expression) \
  TERRACE_ASSIGN_OR_RETURN_(TERRACE_CONCAT_(terrace_result_, __LINE__), declaration, expression)
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses.
#define TERRACE_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return result.error();                         \
  declaration = std::move(result).value()
// NOLINTEND(bugprone-macro-parentheses)
