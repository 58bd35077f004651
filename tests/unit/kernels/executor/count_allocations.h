// Replaces operator new of the whole program it is linked into: such a test is a program of its own.
#pragma once

#include <cstddef>

namespace terrace::test {

// Calls of operator new so far, on any thread.
std::size_t allocations();

}  // namespace terrace::test
