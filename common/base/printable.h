// Text that a peer gave, fit for terminals, logs, JSON and error texts: it can end no line, move no cursor and pass for
// no other letter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace terrace {

// Its first `most` bytes, '?' for each that is not printable ASCII.
std::string printable(std::string_view text, std::size_t most);

}  // namespace terrace
