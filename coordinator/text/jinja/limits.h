// What one rendering may take. Templates come with model files and are hostile until shown otherwise: each limit ends
// the work with an error that names it, long before the machine feels it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::text::jinja {

struct Limits {
  std::size_t source_bytes = std::size_t{1} << 20;  // of a template; the longest known has 17 KB
  std::uint32_t syntax_depth = 200;                 // expressions and statements inside one another, in the source
  std::uint32_t call_depth = 900;                   // the same while it runs: macros that call macros
  std::uint32_t value_depth = 200;                  // lists and objects inside one another
  // Nodes evaluated, and 64 bytes or one element read, compared or copied: about a second of one core at most.
  std::uint64_t steps = 20'000'000;
  std::size_t value_bytes = std::size_t{256} << 20;  // of all values made; what is made is kept until the end
  std::size_t output_bytes = std::size_t{64} << 20;
  std::uint64_t range_elements = 100'000;  // of range(), as Jinja's sandbox has it
};

}  // namespace terrace::text::jinja
