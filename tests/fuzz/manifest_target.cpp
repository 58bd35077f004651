// A manifest, which a coordinator sends to open a session: as it comes, and with its closing hash made right.
#include <algorithm>

#include "common/base/check.h"
#include "common/manifest/manifest.h"
#include "common/security/sha256.h"
#include "tests/fuzz/fuzz_target.h"

namespace terrace::fuzz {
namespace {

void parse(std::span<const std::byte> bytes) {
  const auto manifest = manifest::parse(bytes);
  if (!manifest.ok()) {
    TERRACE_CHECK(!manifest.error().text().empty(), "an error without why");
    return;
  }
  const std::string again = manifest::serialize(*manifest);
  TERRACE_CHECK(std::ranges::equal(std::as_bytes(std::span(again)), bytes), "other bytes than were parsed");
  for (std::uint32_t layer = 0; layer < manifest->n_layers(); ++layer) (void)manifest->slab_bytes(layer);
}

}  // namespace

void run_target(std::span<const std::byte> input) {
  parse(input);
  if (input.size() < sizeof(security::Sha256)) return;
  std::vector<std::byte> sealed(input.begin(), input.end());
  const std::size_t body = sealed.size() - sizeof(security::Sha256);
  const security::Sha256 hash = security::sha256(std::span(sealed).first(body));
  std::ranges::copy(hash, sealed.begin() + static_cast<std::ptrdiff_t>(body));
  parse(sealed);
}

std::vector<Seed> make_seeds() {
  manifest::Manifest manifest;
  manifest.architecture = "qwen3moe";
  manifest.d_model = 256;
  manifest.n_experts = 3;
  manifest.top_k = 2;
  manifest.layers.resize(2);
  for (manifest::LayerShape& layer : manifest.layers) {
    layer.d_model = 256;
    layer.ff = 256;
    layer.n_experts = 3;
    layer.types = {TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ6_K};
  }
  manifest.slab_ids.resize(6);
  for (std::size_t i = 0; i < manifest.slab_ids.size(); ++i) manifest.slab_ids[i].fill(std::byte(i + 1));
  const std::string bytes = manifest::serialize(manifest);
  TERRACE_CHECK(manifest::parse(std::as_bytes(std::span(bytes))).ok(), "the seed is a manifest");
  return {{"two-layers.manifest", to_bytes(bytes)}};
}

}  // namespace terrace::fuzz
