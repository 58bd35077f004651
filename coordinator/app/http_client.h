// The least of an HTTP client: what `terrace bench` needs to be a client of its own server.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace terrace::app {

// Sends a JSON body to 127.0.0.1 and reads the answer to its end, as it comes. Blocks. kIo: the connection failed.
// kInternal: another status than 200; quotes the beginning of the answer.
Status post_to_loopback(std::uint16_t port, std::string_view path, std::string_view body);

}  // namespace terrace::app
