#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/avx512_vector.h"
#include "kernels/cpu/ops/avx_attention.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx512_vnni {

void attend(const AttentionArgs& args) { attend_with<Vector16, avx2::Vector8>(args); }

}  // namespace terrace::kernels::avx512_vnni
