// SPDX-License-Identifier: Apache-2.0
// The rows of packed.h: shapes, costs, and the packing itself, which runs once per weight.
#include "tandem/ops/matmul/packed.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/parallel.h"
#include "tandem/graph/infer.h"

namespace tandem {
namespace {

int64_t panels(int64_t columns) { return (columns + kPackedPanel - 1) / kPackedPanel; }
int64_t size(const Shape& s, int d) { return s[d].value(); }

void check_rank(const InferCall& c, int i, int rank) {
  TD_CHECK(c.in[i].rank() == rank && c.in[i].dtype == DType::f32, Internal,
           "input {} is {}, expected f32 of {} dimensions", i, c.in[i].to_string(), rank);
}

// ---- matrices

void pack_matrix_infer(InferCall& c) {
  check_rank(c, 0, 2);
  const Shape& w = c.in[0].shape;
  c.out[0] = Spec(DType::f32, Shape(panels(size(w, 1)), w[0], kPackedPanel));
}

// to[panel][k][column] for panels first..last-1; element (k, n) of w lies at k * sk + n * sn.
void pack_panels(const float* w, int64_t sk, int64_t sn, int64_t k, int64_t n, int64_t first,
                 int64_t last, float* to) {
  for (int64_t p = first; p < last; ++p) {
    const int64_t n0 = p * kPackedPanel, width = std::min(kPackedPanel, n - n0);
    float* panel = to + p * k * kPackedPanel;
    for (int64_t i = 0; i < k; ++i, panel += kPackedPanel) {
      const float* from = w + i * sk + n0 * sn;
      if (sn == 1) {
        std::memcpy(panel, from, static_cast<size_t>(width) * sizeof(float));
      } else {
        for (int64_t j = 0; j < width; ++j) panel[j] = from[j * sn];
      }
      std::fill(panel + width, panel + kPackedPanel, 0.0f);
    }
  }
}

void pack_matrix_reference(const KernelCall& c) {
  const Array& w = c.in[0];
  const int64_t k = w.shape[0], n = w.shape[1];
  parallel_for(0, panels(n), 1 + 32768 / (k * kPackedPanel + 1), [&](int64_t first, int64_t last) {
    pack_panels(w.as<float>(), w.strides[0], w.strides[1], k, n, first, last, c.out[0].as<float>());
  });
}

void packed_matmul_infer(InferCall& c) {
  check_rank(c, 1, 3);
  const auto& a = c.get_attrs<PackedAttrs>();
  const Shape& x = c.in[0].shape;
  TD_CHECK(x.rank() >= 1 && size(x, x.rank() - 1) == size(c.in[1].shape, 1), Internal,
           "x is {}, the packed weight {}", x.to_string(), c.in[1].to_string());
  Shape y = x;
  y[y.rank() - 1] = a.columns;
  c.out[0] = Spec(DType::f32, y);
}

double packed_flops(const InferCall& c) {
  return 2.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(size(c.in[1].shape, 1));
}

// ---- matrices of bf16

void check_bf16(const InferCall& c, int i, int rank) {
  TD_CHECK(c.in[i].rank() == rank && c.in[i].dtype == DType::bf16, Internal,
           "input {} is {}, expected bf16 of {} dimensions", i, c.in[i].to_string(), rank);
}
void pack_matrix_bf16_infer(InferCall& c) {
  check_bf16(c, 0, 2);
  const Shape& w = c.in[0].shape;
  TD_CHECK(size(w, 0) % 2 == 0, Internal, "{} has an odd number of rows", w.to_string());
  c.out[0] = Spec(DType::bf16, Shape(panels(size(w, 1)), size(w, 0) / 2, 2 * kPackedPanel));
}
void pack_matrix_bf16_reference(const KernelCall& c) {
  const Array& w = c.in[0];
  const int64_t k = w.shape[0], n = w.shape[1], sk = w.strides[0], sn = w.strides[1];
  const auto* from = w.as<uint16_t>();
  auto* to = c.out[0].as<uint16_t>();
  parallel_for(0, panels(n), 1 + 32768 / (k * kPackedPanel + 1), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      for (int64_t j = 0; j < kPackedPanel; ++j) {
        const int64_t column = p * kPackedPanel + j;
        uint16_t* at = to + p * k * kPackedPanel + 2 * j;
        for (int64_t i = 0; i < k; i += 2, at += 2 * kPackedPanel)
          for (int64_t e = 0; e < 2; ++e)
            at[e] = column < n ? from[(i + e) * sk + column * sn] : uint16_t{0};
      }
  });
}
void packed_matmul_bf16_infer(InferCall& c) {
  check_bf16(c, 1, 3);
  const Shape& x = c.in[0].shape;
  TD_CHECK(x.rank() >= 1 && c.in[0].dtype == DType::bf16 &&
               size(x, x.rank() - 1) == 2 * size(c.in[1].shape, 1),
           Internal, "x is {}, the packed weight {}", c.in[0].to_string(), c.in[1].to_string());
  Shape y = x;
  y[y.rank() - 1] = c.get_attrs<PackedAttrs>().columns;
  c.out[0] = Spec(DType::bf16, y);
}
double packed_bf16_flops(const InferCall& c) {
  return 4.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(size(c.in[1].shape, 1));
}

// ---- convolutions

Shape conv_out(const InferCall& c, int64_t columns) {
  check_rank(c, 0, 4);
  const auto& a = c.get_attrs<PackedAttrs>();
  const Shape& x = c.in[0].shape;
  Shape y = x;
  for (int d = 0; d < 2; ++d) {
    const int64_t room =
        size(x, d + 1) + a.padding[d].value() + a.padding_end[d].value() - a.kernel[d].value();
    TD_CHECK(room >= 0, Internal, "a kernel does not fit {}", x.to_string());
    y[d + 1] = room / a.stride[d].value() + 1;
  }
  y[3] = columns;
  return y;
}

void pack_conv_infer(InferCall& c) {
  check_rank(c, 0, 4);
  const Shape& w = c.in[0].shape;
  c.out[0] = Spec(DType::f32,
                  Shape(panels(size(w, 0)), size(w, 1) * size(w, 2) * size(w, 3), kPackedPanel));
}
void pack_conv_reference(const KernelCall& c) {
  const Array& w = c.in[0];
  const int64_t o = w.shape[0], in = w.shape[1], kh = w.shape[2], kw = w.shape[3];
  const int64_t k = kh * kw * in;
  const float* from = w.as<float>();
  float* to = c.out[0].as<float>();
  parallel_for(0, panels(o), 1 + 32768 / (k * kPackedPanel + 1), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      const int64_t columns = std::min(kPackedPanel, o - p * kPackedPanel);
      float* row = to + p * k * kPackedPanel;
      for (int64_t h = 0; h < kh; ++h)
        for (int64_t v = 0; v < kw; ++v)
          for (int64_t i = 0; i < in; ++i, row += kPackedPanel) {
            const float* at = from + p * kPackedPanel * w.strides[0] + i * w.strides[1] +
                              h * w.strides[2] + v * w.strides[3];
            for (int64_t j = 0; j < columns; ++j) row[j] = at[j * w.strides[0]];
            std::fill(row + columns, row + kPackedPanel, 0.0f);
          }
    }
  });
}
void packed_conv_infer(InferCall& c) {
  check_rank(c, 1, 3);
  c.out[0] = Spec(DType::f32, conv_out(c, c.get_attrs<PackedAttrs>().columns));
}

void pack_depthwise_infer(InferCall& c) {
  check_rank(c, 0, 4);
  const Shape& w = c.in[0].shape;
  c.out[0] = Spec(DType::f32, Shape(size(w, 2) * size(w, 3), w[0]));
}
void pack_depthwise_reference(const KernelCall& c) {
  const Array& w = c.in[0];
  const int64_t channels = w.shape[0], kh = w.shape[2], kw = w.shape[3];
  float* to = c.out[0].as<float>();
  for (int64_t h = 0; h < kh; ++h)
    for (int64_t v = 0; v < kw; ++v)
      for (int64_t i = 0; i < channels; ++i)
        *to++ = w.as<float>()[i * w.strides[0] + h * w.strides[2] + v * w.strides[3]];
}
void depthwise_infer(InferCall& c) {
  check_rank(c, 1, 2);
  c.out[0] = Spec(DType::f32, conv_out(c, size(c.in[0].shape, 3)));
}
double depthwise_flops(const InferCall& c) {
  return 2.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(size(c.in[1].shape, 0));
}

// ---- Winograd's F(4x4, 3x3) with the points 0, 1, -1, 2, -2 and infinity

void pack_winograd_infer(InferCall& c) {
  check_rank(c, 0, 4);
  const Shape& w = c.in[0].shape;
  c.out[0] =
      Spec(DType::f32, Shape(kWinogradIn * kWinogradIn, panels(size(w, 0)), w[1], kPackedPanel));
}

// y = G x with the rows of G: (1/4, 0, 0), (-1, -1, -1) / 6, (-1, 1, -1) / 6, (1, 2, 4) / 24,
// (1, -2, 4) / 24, (0, 0, 1).
inline void times_g(double x0, double x1, double x2, double (&y)[6]) {
  const double even = (x0 + x2) * (-1.0 / 6), odd = x1 * (1.0 / 6);
  const double far = x0 * (1.0 / 24) + x2 * (1.0 / 6), near = x1 * (1.0 / 12);
  y[0] = x0 * 0.25;
  y[1] = even - odd;
  y[2] = even + odd;
  y[3] = far + near;
  y[4] = far - near;
  y[5] = x2;
}

// u = G w G^T, in f64 and rounded once; u[e * kPackedPanel].
void transform_weight(const float* w, int64_t sh, int64_t sw, float* u) {
  double t[3][6], y[6];
  for (int j = 0; j < 3; ++j)
    times_g(static_cast<double>(w[j * sw]), static_cast<double>(w[sh + j * sw]),
            static_cast<double>(w[2 * sh + j * sw]), t[j]);
  for (int i = 0; i < 6; ++i) {
    times_g(t[0][i], t[1][i], t[2][i], y);
    for (int j = 0; j < 6; ++j) u[(i * 6 + j) * kPackedPanel] = static_cast<float>(y[j]);
  }
}

void pack_winograd_reference(const KernelCall& c) {
  const Array& w = c.in[0];
  const int64_t o = w.shape[0], in = w.shape[1], count = panels(o);
  float* to = c.out[0].as<float>();
  const int64_t plane = count * in * kPackedPanel;
  parallel_for(0, count * in, 16, [&](int64_t first, int64_t last) {
    float u[36 * kPackedPanel];  // planes are powers of two apart: whole rows go to each
    for (int64_t k = first; k < last; ++k) {
      const int64_t p = k / in, i = k % in, columns = std::min(kPackedPanel, o - p * kPackedPanel);
      if (columns < kPackedPanel) std::fill_n(u, 36 * kPackedPanel, 0.0f);
      for (int64_t j = 0; j < columns; ++j)
        transform_weight(w.as<float>() + (p * kPackedPanel + j) * w.strides[0] + i * w.strides[1],
                         w.strides[2], w.strides[3], u + j);
      for (int64_t e = 0; e < 36; ++e)
        std::copy_n(u + e * kPackedPanel, kPackedPanel, to + e * plane + k * kPackedPanel);
    }
  });
}
void winograd_infer(InferCall& c) {
  check_rank(c, 1, 4);
  c.out[0] = Spec(DType::f32, conv_out(c, c.get_attrs<PackedAttrs>().columns));
}
double winograd_flops(const InferCall& c) {  // of the equivalent convolution
  return 18.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(size(c.in[1].shape, 2));
}

// ---- raw bytes of a file

void read_bytes_infer(InferCall& c) {
  const auto& a = c.get_attrs<ReadBytesAttrs>();
  Shape s;
  for (int d = 0; d < static_cast<int>(a.shape.size()); ++d) s.push_back(a.shape[d]);
  c.out[0] = Spec(a.dtype, s);
  TD_CHECK(
      c.in[0].dtype == DType::u8 && c.in[0].rank() == 1 &&
          c.in[0].shape[0].value() == s.numel().value() * static_cast<int64_t>(size_of(a.dtype)),
      Internal, "{} are not the bytes of {}", c.in[0].to_string(), c.out[0].to_string());
}
void read_bytes_reference(const KernelCall& c) {
  const char* from = c.in[0].as<char>();
  char* to = c.out[0].as<char>();
  parallel_for(0, c.in[0].numel, 1 << 18, [&](int64_t first, int64_t last) {
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
  });
}

constexpr OpDef pack_row(const char* name, InferFn infer, ReferenceFn pack) {
  return index_row(name, {"w"}).infer(infer).reference(pack).flag(kNotDifferentiable | kWeightForm);
}
constexpr OpDef use_row(const char* name, uint32_t kind, InferFn infer, CostFn flops) {
  return contraction(name, {"x", "w", "b?", "r?"}, fields<PackedAttrs>())
      .infer(infer)
      .flops(flops)
      .flag(kNotDifferentiable | kind);
}

}  // namespace

namespace op {
constinit const OpDef read_bytes = index_row("read_bytes", {"b"}, fields<ReadBytesAttrs>())
                                       .infer(read_bytes_infer)
                                       .reference(read_bytes_reference)
                                       .flag(kNotDifferentiable | kWeightForm);
constinit const OpDef pack_matrix =
    pack_row("pack_matrix", pack_matrix_infer, pack_matrix_reference);
constinit const OpDef pack_matrix_bf16 =
    pack_row("pack_matrix_bf16", pack_matrix_bf16_infer, pack_matrix_bf16_reference);
constinit const OpDef packed_matmul_bf16 =
    use_row("packed_matmul_bf16", kPackedMatmul, packed_matmul_bf16_infer, packed_bf16_flops);
constinit const OpDef pack_conv = pack_row("pack_conv", pack_conv_infer, pack_conv_reference);
constinit const OpDef pack_depthwise =
    pack_row("pack_depthwise", pack_depthwise_infer, pack_depthwise_reference);
constinit const OpDef pack_winograd =
    pack_row("pack_winograd", pack_winograd_infer, pack_winograd_reference);
constinit const OpDef packed_matmul =
    use_row("packed_matmul", kPackedMatmul, packed_matmul_infer, packed_flops);
constinit const OpDef packed_conv =
    use_row("packed_conv", kPackedConv | kChannelsLast, packed_conv_infer, packed_flops);
constinit const OpDef depthwise_conv =
    use_row("depthwise_conv", kPackedConv | kChannelsLast, depthwise_infer, depthwise_flops);
constinit const OpDef winograd_conv =
    use_row("winograd_conv", kPackedConv | kChannelsLast, winograd_infer, winograd_flops);
}  // namespace op

}  // namespace tandem
