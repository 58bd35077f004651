#pragma once

#include <fmt/core.h>

#include "coordinator/text/jinja/interpreter.h"

namespace terrace::text::jinja {

// One level of evaluation while it lives: what recurses over the tree, or calls a macro, holds one, so that the stack
// is bounded by Limits::call_depth.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& of) : of_(of) {
    of.heap_.step();
    if (of.depth_ >= of.heap_.limits().call_depth)
      over_limit(
          fmt::format("evaluation is nested more than {} deep, by macros that call one another without end "
                      "perhaps (limit: depth of calls)",
                      of.heap_.limits().call_depth));
    ++of.depth_;
  }
  ~Level() { --of_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& of_;
};

}  // namespace terrace::text::jinja
