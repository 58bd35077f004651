// Cycles of a directed graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::sampler::grammar {

// next[i]: the nodes that edges from node i lead to.
using Graph = std::vector<std::vector<std::uint32_t>>;

// The number of each node's strongly connected component: two nodes have one number if each can be reached from the
// other. Tarjan's algorithm, without recursion: any graph, linear time.
std::vector<std::uint32_t> strong_components(const Graph& next);

}  // namespace terrace::sampler::grammar
