// Replaces operator new, in every form, of the whole program it is linked into: such a test is a program of its own.
#pragma once

#include <cstddef>

namespace terrace::test {

// Calls of operator new so far: on any thread, and on the calling one.
std::size_t allocations();
std::size_t allocations_of_this_thread();
// Bytes asked for so far by the calling thread, given back or not.
std::size_t allocated_bytes_of_this_thread();

}  // namespace terrace::test
