// The fault matrix: what goes wrong, with what, and when. Each cell is a test of its own (fault_matrix_test.cpp).
//
// Disks are the coordinator's. A node reads no disk for a batch: its experts are in memory. Where it has a copy of the
// model it reads that while it takes its share, as slowly as a slow link would bring the same bytes (the paced link's
// tests); it writes a cache of the copy's manifest and nothing else, and serves where that disk is full
// (FullDisk.ManifestCacheOfANode_IsAWarningAndItServes).
#pragma once

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace terrace::test {

enum class FaultKind : std::uint8_t {
  kKilled,          // SIGKILL of the node
  kStopped,         // SIGSTOP of the node: its machine answers, it does not
  kLinkDown,        // of the node's machine, for good
  kLinkUpAgain,     // down, and up again before the run ends
  kCorruptFrame,    // one bit on the wire is the other one
  kTruncatedFrame,  // a frame without its end, and the end of the connection
  kWrongVersion,    // a frame of a version that does not exist
  kWrongHash,       // the node is lost, and its copy of the model has other bytes than the manifest says
  kSlowDisk,        // the node is killed, and the file behind the backstop comes at a megabyte a second
  kOutOfMemory,     // the node is lost, and when it is to set memory aside again its system has none
  kFullDisk,        // of the coordinator: where its trace and its caches lie
};
inline constexpr std::array kAllFaults = {
    FaultKind::kKilled,       FaultKind::kStopped,        FaultKind::kLinkDown,     FaultKind::kLinkUpAgain,
    FaultKind::kCorruptFrame, FaultKind::kTruncatedFrame, FaultKind::kWrongVersion, FaultKind::kWrongHash,
    FaultKind::kSlowDisk,     FaultKind::kOutOfMemory,    FaultKind::kFullDisk};

enum class Phase : std::uint8_t {
  kPrompt,   // a reply to a prompt batch is under way
  kDecode,   // a reply to a decode batch is under way
  kWeights,  // the node, which was lost, is back and takes slabs while tokens are made
  kLoad,     // the node takes its slabs for the first time, before there is anything to ask
  kIdle,     // nothing is asked: the next request finds it so
};
inline constexpr std::array kAllPhases = {Phase::kPrompt, Phase::kDecode, Phase::kWeights, Phase::kLoad, Phase::kIdle};

struct Cell {
  FaultKind fault = FaultKind::kKilled;
  Phase phase = Phase::kPrompt;
  bool sealed = false;
};

std::string name(const Cell& cell);  // "NodeKilled_DuringPrompt_Plain"
// What gtest, and with it ctest, shows of a parameter.
inline std::ostream& operator<<(std::ostream& out, const Cell& cell) { return out << name(cell); }
// What tests/capability.sh must find for it.
std::vector<std::string> needs(const Cell& cell);
std::vector<Cell> all_cells();

}  // namespace terrace::test
