// What code in vector types has in common. Only for common/wire.
#pragma once

#include <cstring>

namespace terrace::wire {

// Inlined into functions of any instruction set. Vectors go by reference: how they are passed by value would depend on
// that.
template <class Vector>
__attribute__((always_inline)) inline void load_vector(const void* from, Vector& to) {
  std::memcpy(&to, from, sizeof to);
}
template <class Vector>
__attribute__((always_inline)) inline void store_vector(const Vector& from, void* to) {
  std::memcpy(to, &from, sizeof from);
}

}  // namespace terrace::wire
