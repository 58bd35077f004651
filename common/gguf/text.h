// Text from a file, made fit for a message or a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::gguf {

// True if the text is UTF-8 without control characters: what keys and tensor names must be, since they are printed.
bool is_printable(std::string_view text);

// The text with control characters and, unless it is UTF-8, all bytes above 0x7e as \xHH; cut after max_bytes of the
// original, then ending in "...".
std::string escaped(std::string_view text, std::size_t max_bytes = 80);

// How messages name a key: "key K (offset N)", escaped; N is Value::offset. "key K" for one that is in no file.
std::string key_place(std::string_view key, std::optional<std::uint64_t> offset);

}  // namespace terrace::gguf
