#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/avx_attention.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {

void attend(const AttentionArgs& args) { attend_with<Vector8, Vector8>(args); }

}  // namespace terrace::kernels::avx2
