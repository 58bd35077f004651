// The bytes of slabs that a probe computes with: made, not read, by the coordinator and each node alike, so that rates
// can be measured before a model is loaded (docs/wire.md 13).
//
// Threads  Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace terrace::manifest {

// The slab of this layer and expert of a probe's model; out has the slab's size. Every byte is 0x3c, but that the last
// 16 are 0x30 + the nibbles of layer and expert: ordinary numbers in each weight type, and no two slabs alike.
void make_probe_slab(std::uint32_t layer, std::uint32_t expert, std::span<std::byte> out);

}  // namespace terrace::manifest
