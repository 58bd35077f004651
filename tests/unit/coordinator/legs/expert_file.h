// A model file that has experts and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/base/tensor_type.h"
#include "common/gguf/bytes.h"
#include "common/gguf/writer.h"

namespace terrace::legs {

// Two layers of 2 experts of 256 x 256, gate and up apart or fused, each value of the file another.
inline void write_model(const std::filesystem::path& path, bool fused, TensorType type) {
  using Shape = std::vector<std::uint64_t>;
  constexpr std::uint64_t kSide = 256;
  auto writer = gguf::Writer::create(path);
  ASSERT_TRUE(writer.ok());
  writer->add_string("general.architecture", "qwen3moe");
  for (const auto& [key, value] : {std::pair{"block_count", 2u},
                                   {"embedding_length", 256u},
                                   {"expert_count", 2u},
                                   {"expert_used_count", 1u},
                                   {"expert_feed_forward_length", 256u}})
    writer->add_u32("qwen3moe." + std::string(key), value);
  std::size_t bytes = 0;
  const auto add = [&](int layer, const char* part, std::uint64_t rows) {
    writer->add_tensor("blk." + std::to_string(layer) + ".ffn_" + part + "_exps.weight", type, Shape{kSide, rows, 2});
    bytes += row_bytes(type, kSide) * rows * 2;
  };
  for (const int layer : {0, 1}) {
    if (fused) {
      add(layer, "gate_up", 2 * kSide);
    } else {
      add(layer, "gate", kSide);
      add(layer, "up", kSide);
    }
    add(layer, "down", kSide);
  }
  std::string data(bytes, 0);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i % 251 + i / 997);
  ASSERT_TRUE(writer->write(gguf::as_bytes(data)).ok());
  ASSERT_TRUE(writer->finish().ok());
}

}  // namespace terrace::legs
