// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/pixels_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tandem/base/processor.h"
#include "tandem/base/unroll_internal.h"
#include "tandem/tensor/tensor_impl.h"

namespace tandem::detail {
namespace {

#if defined(__x86_64__)
/// Sixteen three-channel pixels at a time; returns how many were processed.
__attribute__((target("ssse3"))) int64_t planes_of_3(const uint8_t* from, uint8_t* to,
                                                     int64_t pixels, int64_t plane) {
  // Where each of the 48 bytes of a plane's sixteen pixels is in the three loads.
  __m128i pick[3][3];
  for (int c = 0; c < 3; ++c)
    for (int part = 0; part < 3; ++part) {
      alignas(16) uint8_t at[16];
      for (int i = 0; i < 16; ++i) {
        const int byte = 3 * i + c - 16 * part;
        at[i] = byte >= 0 && byte < 16 ? static_cast<uint8_t>(byte) : 0x80;
      }
      pick[c][part] = _mm_load_si128(reinterpret_cast<const __m128i*>(at));
    }
  int64_t i = 0;
  for (; i + 16 <= pixels; i += 16) {
    const auto* p = reinterpret_cast<const __m128i*>(from + 3 * i);
    const __m128i a = _mm_loadu_si128(p), b = _mm_loadu_si128(p + 1), d = _mm_loadu_si128(p + 2);
    TD_UNROLL(3)
    for (int c = 0; c < 3; ++c)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + c * plane + i),
                       _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, pick[c][0]),
                                                 _mm_shuffle_epi8(b, pick[c][1])),
                                    _mm_shuffle_epi8(d, pick[c][2])));
  }
  return i;
}
#endif

}  // namespace

Tensor new_pixels(int64_t channels, int64_t height, int64_t width) {
  Strides strides;
  strides[0] = 1;
  strides[1] = width * channels;
  strides[2] = channels;
  return Tensor(
      Ref<TensorImpl>::adopt(new_tensor({channels, height, width}, DType::u8, cpu, &strides)));
}

bool is_pixels(const Tensor& t) {
  if (t.dtype() != DType::u8 || t.dim() != 3 || t.is_symbolic()) return false;
  const int64_t c = t.size(0), w = t.size(2);
  const std::span<const int64_t> s = t.strides();
  return c > 1 && s[0] == 1 && s[1] == w * c && s[2] == c;
}

void to_planes(const uint8_t* from, uint8_t* to, int64_t pixels, int64_t channels, int64_t plane) {
  int64_t begin = 0;
#if defined(__x86_64__)
  if (channels == 3 && cpu_features().ssse3) begin = planes_of_3(from, to, pixels, plane);
#endif
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = begin; i < pixels; ++i) to[c * plane + i] = from[i * channels + c];
}

}  // namespace tandem::detail
