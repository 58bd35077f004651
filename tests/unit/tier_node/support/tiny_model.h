// tests/data/tiny as node tests use it: the file's experts, its manifest, every slab's bytes, and what a batch gives.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/parallel.h"
#include "common/gguf/file.h"
#include "common/manifest/experts.h"
#include "common/manifest/manifest.h"
#include "common/manifest/slab.h"
#include "common/wire/messages.h"
#include "kernels/cpu/ops/ops.h"
#include "kernels/executor/executor.h"
#include "tests/test_data.h"
#include "tier_node/session/model.h"

namespace terrace::node::test {

// The value, or the test ends with the error's text.
template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text());
  return std::move(result).value();
}
inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().text());
}

// For calls that ask whether anybody still waits for them.
inline constexpr auto kGoOn = [] { return true; };

inline Machine this_machine() { return {kernels::detect_cpu_features(), std::nullopt}; }

struct TinyModel {
  explicit TinyModel(const std::string& name = "tiny-q8_0.gguf")
      : path(terrace::test::data_dir() / "tiny" / name),
        file(must(gguf::File::open(path))),
        experts(must(manifest::find_experts(file))) {
    Serial serial;
    const auto no_progress = [](std::uint64_t, std::uint64_t) {};
    manifest = must(manifest::compute(file, experts, serial, no_progress));
    manifest_bytes = manifest::serialize(manifest);
    for (std::uint32_t layer = 0; layer < manifest.n_layers(); ++layer)
      for (std::uint32_t expert = 0; expert < manifest.n_experts; ++expert) {
        std::vector<std::byte> bytes(manifest.slab_bytes(layer));
        must(manifest::read_slab(file, experts, layer, expert, bytes));
        slabs.push_back(std::move(bytes));
      }
  }

  const std::vector<std::byte>& slab(std::uint32_t layer, std::uint32_t expert) const {
    return slabs[layer * manifest.n_experts + expert];
  }
  kernels::SlabView view(std::uint32_t layer, std::uint32_t expert) const {
    const manifest::LayerShape& shape = manifest.layers[layer];
    const std::byte* gate = slab(layer, expert).data();
    return {gate, gate + shape.gate_bytes(), gate + shape.gate_bytes() + shape.up_bytes()};
  }
  std::vector<ShareItem> everything() const {
    std::vector<ShareItem> items;
    for (std::uint32_t layer = 0; layer < manifest.n_layers(); ++layer)
      for (std::uint32_t expert = 0; expert < manifest.n_experts; ++expert) items.push_back({layer, expert});
    return items;
  }
  std::uint64_t all_slab_bytes() const { return experts.total_bytes(); }

  std::filesystem::path path;
  gguf::File file;
  manifest::ModelExperts experts;
  manifest::Manifest manifest;
  std::string manifest_bytes;
  std::vector<std::vector<std::byte>> slabs;  // [n_layers * n_experts]
};

// A batch of random rows and pairs, and what the local executor says it gives.
struct TestBatch {
  TestBatch(const TinyModel& model, std::uint32_t layer_, std::uint32_t n_rows_, std::uint32_t pairs_per_row,
            unsigned seed)
      : layer(layer_), n_rows(n_rows_) {
    const Machine machine = this_machine();
    const manifest::LayerShape& shape = model.manifest.layers[layer];
    kernels = must(
        kernels::select_expert_kernels({shape.types.gate, shape.types.up, shape.types.down, shape.d_model, shape.ff},
                                       machine.cpu, machine.isa, kernels::Activations::kQuantised));
    ops = must(kernels::select_ops(machine.cpu, machine.isa));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> row(model.manifest.d_model);
    for (std::uint32_t r = 0; r < n_rows; ++r) {
      for (float& value : row) value = normal(random);
      append(gate_rows, row, kernels.gate_class());
      if (kernels.up_class() != kernels.gate_class()) append(up_rows, row, kernels.up_class());
    }
    for (std::uint32_t expert = 0; expert < model.manifest.n_experts; ++expert)
      for (std::uint32_t r = 0; r < n_rows; ++r)
        if ((expert + r) % model.manifest.n_experts < pairs_per_row)
          pairs.push_back({static_cast<std::uint16_t>(r), static_cast<std::uint16_t>(expert),
                           0.125f * static_cast<float>(1 + (r + expert) % 7)});
    ranges = {{0, n_rows}};
  }

  std::uint32_t d_model() const { return kernels.shape.d_model; }
  // What a frame says of it: sums, as decode.
  wire::BatchInfo info() const {
    wire::BatchInfo info;
    info.n_rows = n_rows;
    info.n_pairs = static_cast<std::uint32_t>(pairs.size());
    info.n_ranges = static_cast<std::uint32_t>(ranges.size());
    info.d_model = d_model();
    info.gate_class = kernels.gate_class();
    info.up_class = kernels.up_class();
    return info;
  }

  // [n_rows, d_model]
  std::vector<std::int64_t> expected(const TinyModel& model) const {
    Serial serial;
    kernels::Executor executor(serial, ops);
    std::vector<std::int64_t> sums(std::size_t{n_rows} * d_model());
    std::vector<std::uint8_t> failed(n_rows);
    must(executor.run(
        kernels, [&](std::uint16_t expert) { return model.view(layer, expert); }, view(),
        {sums.data(), d_model(), model.manifest.shift}, failed, [] { return true; }));
    return sums;
  }
  // [n_pairs, d_model]
  std::vector<float> expected_slots(const TinyModel& model) const {
    Serial serial;
    kernels::Executor executor(serial, ops);
    std::vector<float> out(pairs.size() * d_model());
    std::vector<std::uint8_t> failed(n_rows);
    must(executor.run_slots(
        kernels, [&](std::uint16_t expert) { return model.view(layer, expert); }, view(), out, failed,
        [] { return true; }));
    return out;
  }

  std::uint32_t layer = 0;
  std::uint32_t n_rows = 0;
  std::vector<std::byte> gate_rows, up_rows;  // up_rows empty: as gate's
  std::vector<wire::Pair> pairs;
  std::vector<wire::RowRange> ranges;
  kernels::ExpertKernels kernels;
  kernels::Ops ops;

 private:
  void append(std::vector<std::byte>& rows, const std::vector<float>& row, ActivationClass activation) {
    const std::size_t at = rows.size();
    rows.resize(at + row_bytes(activation, row.size()));
    ops.quantize_row(activation, row.data(), row.size(), rows.data() + at);
  }
  kernels::BatchView view() const {
    const std::vector<std::byte>& up = up_rows.empty() ? gate_rows : up_rows;
    return {{kernels.gate_class(), gate_rows.data(), row_bytes(kernels.gate_class(), d_model())},
            {kernels.up_class(), up.data(), row_bytes(kernels.up_class(), d_model())},
            n_rows,
            {reinterpret_cast<const kernels::Pair*>(pairs.data()), pairs.size()}};
  }
};

}  // namespace terrace::node::test
