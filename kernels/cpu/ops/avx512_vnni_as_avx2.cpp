// Operations that use AVX2 under this ISA too, by decision and not by falling back: they move a few hundred values that
// are at hand, one head at a time, and store_k scatters them one by one. Wider vectors have nothing to gain.
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx512_vnni {

void rope(float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing) {
  avx2::rope(x, cosines, sines, n_rot, pairing);
}

void store_k(const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block) {
  avx2::store_k(k, head_dim, slot, type, block);
}

void store_v(const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block) {
  avx2::store_v(v, value_dim, slot, type, block);
}

bool storable(const float* x, std::size_t n, KvType type) { return avx2::storable(x, n, type); }

}  // namespace terrace::kernels::avx512_vnni
