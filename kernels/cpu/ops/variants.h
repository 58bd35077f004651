// Every variant of every operation, one namespace per ISA; select.cpp puts them into tables. Contracts: ops.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/ops/args.h"

namespace terrace::kernels::scalar {

bool all_finite(const float* x, std::size_t n);
std::size_t largest(const float* x, std::size_t n);
void rms_norm(const float* x, const float* w, std::size_t n, float eps, float* y);
void add(float* x, const float* y, std::size_t n);
void rope(float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing);
void silu_mul(const float* gate, const float* up, std::size_t n, float* h);
void exp(const float* x, std::size_t n, float* y);
void silu(const float* x, std::size_t n, float* y);
bool add_fixed(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums);
bool from_fixed(const std::int64_t* sums, std::size_t n, int shift, float* x);
void store_k(const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block);
void store_v(const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block);
bool storable(const float* x, std::size_t n, KvType type);
void attend(const AttentionArgs& args);
void attend_splits(const AttentionArgs& args, const AttentionSplits& splits);
void merge_splits(const AttentionArgs& args, float* states);

}  // namespace terrace::kernels::scalar

namespace terrace::kernels::avx2 {

bool all_finite(const float* x, std::size_t n);
std::size_t largest(const float* x, std::size_t n);
void rms_norm(const float* x, const float* w, std::size_t n, float eps, float* y);
void add(float* x, const float* y, std::size_t n);
void rope(float* x, const float* cosines, const float* sines, std::size_t n_rot, RopePairing pairing);
void silu_mul(const float* gate, const float* up, std::size_t n, float* h);
void exp(const float* x, std::size_t n, float* y);
void silu(const float* x, std::size_t n, float* y);
bool add_fixed(float weight, const float* out, std::size_t n, int shift, std::int64_t* sums);
bool from_fixed(const std::int64_t* sums, std::size_t n, int shift, float* x);
void store_k(const float* k, std::size_t head_dim, std::size_t slot, KvType type, std::byte* block);
void store_v(const float* v, std::size_t value_dim, std::size_t slot, KvType type, std::byte* block);
bool storable(const float* x, std::size_t n, KvType type);
void attend(const AttentionArgs& args);
void attend_splits(const AttentionArgs& args, const AttentionSplits& splits);
void merge_splits(const AttentionArgs& args, float* states);

}  // namespace terrace::kernels::avx2
