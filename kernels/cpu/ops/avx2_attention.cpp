#include "kernels/cpu/ops/avx2_vector.h"
#include "kernels/cpu/ops/avx_attention.h"
#include "kernels/cpu/ops/variants.h"

namespace terrace::kernels::avx2 {

void attend(const AttentionArgs& args) { attend_in_splits(kAttentionParts<Vector8, Vector8>, args); }
void attend_splits(const AttentionArgs& args, const AttentionSplits& splits) {
  kernels::attend_splits(kAttentionParts<Vector8, Vector8>, args, splits);
}
void merge_splits(const AttentionArgs& args, float* states) {
  kernels::merge_splits(kAttentionParts<Vector8, Vector8>, args, states);
}

}  // namespace terrace::kernels::avx2
