// Whether this build's kernels run on a card: they are machine code for the architectures of
// TERRACE_CUDA_ARCHITECTURES.
#pragma once

namespace terrace::kernels::cuda {

// Of the thread's current card.
bool has_code_for_current_card();

}  // namespace terrace::kernels::cuda
