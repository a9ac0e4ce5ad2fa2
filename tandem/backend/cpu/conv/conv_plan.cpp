// SPDX-License-Identifier: Apache-2.0
// Shared by the own convolution kernels: activations converted to channels-last in scratch, weights
// with the channels innermost, and the sum of partial weight derivatives.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/view/strided_copy_internal.h"

namespace tandem::detail {

namespace {

template <class Takes>
bool all_usable(const KernelCall& c, Takes takes) {
  const auto usable = [&](const Array& a) {
    if (!takes(a.dtype)) return false;
    for (int d = 0; d < a.rank; ++d)
      if (a.shape[d] == 0) return false;
    return true;
  };
  const bool bias = c.n_in > 2 && c.in[2].present();
  return usable(c.out[0]) && usable(c.in[0]) && usable(c.in[1]) &&
         (!bias || (c.in[2].contiguous && takes(c.in[2].dtype)));
}

}  // namespace

bool conv_supports_f32(const KernelCall& c) {
  return all_usable(c, [](DType t) { return t == DType::f32; });
}
bool conv_supports_floats(const KernelCall& c) {
  return all_usable(c, [](DType t) { return t == DType::f32 || is_short_float(t); });
}

bool conv_layout(const KernelCall& c, int, Strides& s) {
  s = channels_last_strides(c.out[0].shape, c.out[0].rank);
  return true;
}

size_t conv_bytes(int64_t elements) {
  return static_cast<size_t>((elements + 15) / 16 * 16) * sizeof(float);
}

ConvActivation ConvPlan::activation(const Array& a) {
  ConvActivation r{!is_channels_last(a), workspace};
  if (r.copy) workspace += conv_bytes(a.numel);
  return r;
}
size_t ConvPlan::take(size_t bytes) {
  const size_t at = workspace;
  workspace += whole_lines(bytes);
  return at;
}

char* conv_scratch(const KernelCall& c, size_t at) { return static_cast<char*>(c.scratch) + at; }

const void* conv_read_any(const KernelCall& c, int i, const ConvActivation& a) {
  if (!a.copy) return c.in[i].data;
  void* to = conv_scratch(c, a.offset);
  to_channels_last(c.in[i], to);
  return to;
}
void* conv_written_any(const KernelCall& c, const ConvActivation& a) {
  return a.copy ? conv_scratch(c, a.offset) : c.out[0].data;
}
void conv_store(const KernelCall& c, const ConvActivation& a) {
  if (!a.copy) return;
  const Array& y = c.out[0];
  Strides s = channels_last_strides(y.shape, y.rank);
  strided_copy(y.data, y.strides, conv_scratch(c, a.offset), s.data(), y.shape, y.rank,
               size_of(y.dtype));
}

void conv_pack_weight(const Array& w, float* to) {
  const int64_t o = w.shape[0], channels = w.shape[1];
  int64_t taps = 1;
  for (int d = 2; d < w.rank; ++d) taps *= w.shape[d];
  // transpose() writes whole vectors: a row must not reach into one that another thread has
  // finished.
  if (w.contiguous && taps > 1 && channels % micro_table<float>().width == 0) {
    const int64_t row = channels * taps;
    parallel_for(0, o, 1 + 16384 / row, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        micro_table<float>().transpose(to + i * row, channels, w.as<float>() + i * row, taps,
                                       channels, taps);
    });
    return;
  }
  int64_t strides[kMaxRank];
  int64_t step = channels;
  strides[1] = 1;
  for (int d = w.rank - 1; d >= 2; --d) {
    strides[d] = step;
    step *= w.shape[d];
  }
  strides[0] = step;
  strided_copy(to, strides, w.data, w.strides, w.shape, w.rank, sizeof(float));
}

// gw[o][c][tap] = sum over parts, in order, of partial[o][tap][c].
void add_weight_parts(const ConvSizes& s, float* partial, int64_t parts, float* row_buffer,
                      int64_t first, int64_t last, float* gw) {
  const int64_t size = s.patch(), all = s.o * size, channels = s.group_in();
  for (int64_t o = first; o < last; ++o) {
    float* sum = partial + o * size;
    for (int64_t p = 1; p < parts; ++p) {
      const float* add = sum + p * all;
      for (int64_t i = 0; i < size; ++i) sum[i] += add[i];
    }
    float* to = gw + o * size;
    if (s.taps == 1 || channels == 1) {
      copy_bytes(to, sum, static_cast<size_t>(size) * sizeof(float));
    } else if (s.taps <= 16) {
      micro_table<float>().transpose(row_buffer, s.taps, sum, channels, s.taps, channels);
      std::memcpy(to, row_buffer, static_cast<size_t>(size) * sizeof(float));
    } else {
      for (int64_t t = 0; t < s.taps; ++t)
        for (int64_t ch = 0; ch < channels; ++ch) to[ch * s.taps + t] = sum[t * channels + ch];
    }
  }
}

}  // namespace tandem::detail
