// Who computes what while legs are gone: made of the planned table, without moving a byte (docs/architecture.md,
// when a node is lost).
//
// Threads  Pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "coordinator/legs/owner_table.h"

namespace terrace::planner {

using legs::HoldsSlab;

// `planned` as epoch `epoch` without the legs whose gone[leg] is not 0 (never leg 0, the host; another size aborts).
// What they owned goes, in id order, to the leg that holds the slab and owns least of the layer by then (the first of
// several), else to the host, whose file has every slab. What the others own stays theirs: no batch of theirs changes.
// With no leg gone it is the planned table.
legs::OwnerTable owners_without(const legs::OwnerTable& planned, std::span<const std::uint8_t> gone,
                                std::uint64_t epoch, HoldsSlab holds);

}  // namespace terrace::planner
