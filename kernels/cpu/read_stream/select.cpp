#include "kernels/cpu/read_stream/read_stream.h"

namespace terrace::kernels {

ReadStreamFn read_stream_of(Isa isa) {
#if defined(__x86_64__)
  // Of AVX-512 too: memory, not the width of a load, is what is measured.
  if (isa != Isa::kScalar) return read_stream_avx2;
#endif
  (void)isa;
  return read_stream_scalar;
}

}  // namespace terrace::kernels
