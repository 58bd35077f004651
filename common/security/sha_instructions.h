// Whether hashes are quick here.
#pragma once

namespace terrace::security {

// Whether this CPU computes SHA-256 by instructions of its own: 1.2 to 1.5 GB/s a thread, and about a third of that
// without.
bool has_sha_instructions();

}  // namespace terrace::security
