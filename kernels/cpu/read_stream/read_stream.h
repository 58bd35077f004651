// Reads memory as fast as a core can and does next to nothing with it: the yardstick beside which a kernel's reading of
// weights is put (`terrace bench --limits`).
//
// Result   The XOR of the 64-bit words, so that no load can be left out and a test can tell that none was.
// Threads  Pure functions; the caller splits the bytes.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/cpu/read_stream/variants.h"

namespace terrace::kernels {

using ReadStreamFn = ReadStream*;

// The variant of `isa`, which this CPU has.
ReadStreamFn read_stream_of(Isa isa);

}  // namespace terrace::kernels
