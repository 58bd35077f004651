// How work on a template ends early. Evaluation recurses over the tree, through filters that call macros and back, so
// here alone an error unwinds as an exception, of this one type: Template's functions catch it and give a Result.
#pragma once

#include <string>
#include <utility>

#include "common/base/result.h"

namespace terrace::text::jinja {

struct Failure {
  ErrorCode code;
  std::string text;
  bool placed = false;  // the text is complete: no line is put before it
};

// What the template does cannot be done with these values.
[[noreturn]] inline void refuse(std::string text) { throw Failure{ErrorCode::kRefused, std::move(text)}; }
// Jinja or Python has it; this interpreter does not.
[[noreturn]] inline void not_here(std::string text) { throw Failure{ErrorCode::kUnsupported, std::move(text)}; }
// A limit is passed; the text names it.
[[noreturn]] inline void over_limit(std::string text) { throw Failure{ErrorCode::kOutOfMemory, std::move(text)}; }

}  // namespace terrace::text::jinja
