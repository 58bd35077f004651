// HMAC with SHA-256 (RFC 2104): proves that whoever made the code holds the key.
#pragma once

#include <cstddef>
#include <span>

#include "common/security/sha256.h"

namespace terrace::security {

// Compare the result by constant_time_equal(). Any thread.
Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

}  // namespace terrace::security
