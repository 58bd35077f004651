// The error of every reader of this folder and of common/manifest.
#pragma once

#include <string>
#include <utility>

#include "common/base/result.h"

namespace terrace::gguf {

// A file, or a part of it, that is not what it has to be; the text says what was found, where, and what is allowed.
inline Error corrupt(std::string text) { return Error(ErrorCode::kCorrupt, std::move(text)); }

}  // namespace terrace::gguf
