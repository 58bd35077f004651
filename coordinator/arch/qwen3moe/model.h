// A qwen3moe model as its file and the options say it is: what trunks of every kind are made from.
#pragma once

#include "common/base/result.h"
#include "common/gguf/file.h"
#include "coordinator/arch/qwen3moe/parameters.h"
#include "coordinator/arch/qwen3moe/tensors.h"
#include "coordinator/arch/trunk.h"
#include "coordinator/arch/trunk_options.h"
#include "coordinator/kv/cache.h"

namespace terrace::arch::qwen3moe {

// Borrows the file's mapping.
struct Model {
  Parameters parameters;
  Tensors tensors;
  kv::CacheShape cache;
  ModelInfo info;
};

// Errors as describe().
Result<Model> read_model(const gguf::File& file, const TrunkOptions& options);

}  // namespace terrace::arch::qwen3moe
