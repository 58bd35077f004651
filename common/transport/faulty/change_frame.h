// Frames as a fault leaves them. Only for common/transport/faulty.
#pragma once

#include <span>

#include "common/base/aligned_buffer.h"
#include "common/transport/faulty/fault_script.h"
#include "common/transport/send_queue.h"

namespace terrace::transport {

// The frame of `parts` in one piece, changed as the verdict says: without credit, then a bit flipped, then cut short.
// Bytes that are no frame have no credit to take away. Ends the process when there is no memory: this is test
// equipment.
AlignedBuffer changed_frame(std::span<const Part> parts, const Verdict& verdict);

}  // namespace terrace::transport
