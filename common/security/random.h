// Random bytes fit for keys and ids, from OpenSSL's generator, which the operating system seeds.
#pragma once

#include <cstddef>
#include <span>

#include "common/base/result.h"

namespace terrace::security {

// Fills out. kIo: the system gives no randomness; out must then not be used. Any thread.
Status random_bytes(std::span<std::byte> out);

}  // namespace terrace::security
