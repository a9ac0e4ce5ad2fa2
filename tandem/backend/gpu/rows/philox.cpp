// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/rows/philox_internal.h"

namespace tandem::gpu {

constinit const char* const kPhilox = R"td_text(
#undef TD_SEED
#undef TD_OFFSET
#define TD_SEED (td_counted ? (td_u64)td_from[0] + (td_u64)td_seed : (td_u64)td_seed)
#define TD_OFFSET (td_counted ? (td_u32)td_from[1] + (td_u32)td_offset : (td_u32)td_offset)
typedef struct { td_u32 w0, w1, w2, w3; } td_block_of_words;
TDM_FN td_block_of_words td_philox(td_u64 seed, td_u32 offset, td_u64 element, td_u32 draw) {
  td_u32 c0 = offset, c1 = draw, c2 = (td_u32)element, c3 = (td_u32)(element >> 32);
  td_u32 k0 = (td_u32)seed, k1 = (td_u32)(seed >> 32);
  td_block_of_words b;
  int round;
  for (round = 0; round < 10; ++round) {
    const td_u64 p = (td_u64)0xD2511F53u * c0, q = (td_u64)0xCD9E8D57u * c2;
    c0 = (td_u32)(q >> 32) ^ c1 ^ k0;
    c1 = (td_u32)q;
    c2 = (td_u32)(p >> 32) ^ c3 ^ k1;
    c3 = (td_u32)p;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  b.w0 = c0;
  b.w1 = c1;
  b.w2 = c2;
  b.w3 = c3;
  return b;
}
TDM_FN td_u64 td_word64(td_u32 low, td_u32 high) { return (td_u64)high << 32 | low; }
TDM_FN float td_uniform_f32(td_u32 w) { return (float)(int)(w >> 8) * 0x1p-24f; }
TDM_FN double td_uniform_f64(td_u64 w) { return (double)(td_i64)(w >> 11) * 0x1p-53; }
TDM_FN float td_uniform_f16(td_u32 w) { return (float)(int)(w >> 21) * 0x1p-11f; }
TDM_FN float td_uniform_bf16(td_u32 w) { return (float)(int)(w >> 24) * 0x1p-8f; }
TDM_FN float td_normal_f32(td_block_of_words b) {
  const float u = 1.0f - td_uniform_f32(b.w0);
  const float angle = td_uniform_f32(b.w1) * 6.28318530717958647692f;
  return tdm_sqrtf(-2.0f * tdm_logf(u)) * tdm_cosf(angle);
}
TDM_FN double td_normal_f64(td_block_of_words b) {
  const double u = 1.0 - td_uniform_f64(td_word64(b.w0, b.w1));
  const double angle = td_uniform_f64(td_word64(b.w2, b.w3)) * 6.28318530717958647692;
  return tdm_sqrt(-2.0 * tdm_log(u)) * tdm_cos(angle);
}
TDM_FN td_u64 td_uniform_u64(td_u64 w, td_u64 range) {
  const td_u64 wl = w & 0xFFFFFFFFu, wh = w >> 32, rl = range & 0xFFFFFFFFu, rh = range >> 32;
  const td_u64 mid = wh * rl + (wl * rl >> 32), mid2 = wl * rh + (mid & 0xFFFFFFFFu);
  return range == 0 ? w : wh * rh + (mid >> 32) + (mid2 >> 32);
}
)td_text";

void declare_key(KernelSource& k) {
  k.parameters.push_back({Parameter::in, DType::i64, "td_from"});
  k.parameters.push_back({Parameter::value, DType::i32, "td_counted"});
  k.parameters.push_back({Parameter::value, DType::i64, "td_seed"});
  k.parameters.push_back({Parameter::value, DType::i32, "td_offset"});
  k.functions.push_back(kPhilox);
}
void argue_key(Arguments& a, const KernelCall& c) {
  a.address(address_of(c.rng_from), c.rng_from ? 2 * sizeof(int64_t) : 0);
  a.value(static_cast<int32_t>(c.rng_from != nullptr));
  a.value(static_cast<int64_t>(c.rng.seed)).value(static_cast<int32_t>(c.rng.offset));
}

}  // namespace tandem::gpu
