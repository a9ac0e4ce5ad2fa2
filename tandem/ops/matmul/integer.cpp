// SPDX-License-Identifier: Apache-2.0
// The rows of integer.h: shapes, plain loops as reference, and the packing of weights.
#include "tandem/ops/matmul/integer.h"

#include <array>

#include "tandem/ops/matmul/nbits.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

using detail::integer_zero;
using detail::IntegerWeight;

bool is_byte(DType t) { return t == DType::u8 || t == DType::i8; }

void check_bytes(const InferCall& c) {
  for (int i = 0; i < 2; ++i)
    TD_CHECK(is_byte(c.in[i].dtype), DType, "{} is {}, expected uint8 or int8\nCast it with .to().",
             i == 0 ? "x" : "w", to_string(c.in[i].dtype));
}

// `columns` is the number of results that a zero point of the weight may differ for.
void check_zeros(const InferCall& c, Dim columns) {
  for (int i = 2; i < 4; ++i) {
    if (!c.has(i)) continue;
    const Spec& z = c.in[i];
    const char* name = i == 2 ? "x_zero" : "w_zero";
    TD_CHECK(z.dtype == c.in[i - 2].dtype, DType, "{} is {}, expected {}\nCast it with .to().",
             name, to_string(z.dtype), to_string(c.in[i - 2].dtype));
    const bool one = !z.shape.is_symbolic() && z.shape.numel().value() == 1;
    TD_CHECK(one || (i == 3 && z.rank() == 1 && dims_equal(z[0], columns)), Shape,
             "{} is {}, expected one number{}", name, z.shape.to_string(),
             i == 3 ? " or [" + columns.to_string() + "]" : "");
  }
}

// ---- matrices

void integer_matmul_infer(InferCall& c) {
  check_bytes(c);
  const Shape &x = c.in[0].shape, &w = c.in[1].shape;
  TD_CHECK(x.rank() >= 1 && w.rank() == 2, Shape, "x is {}, w is {}, expected [..., k] and [k, n]",
           x.to_string(), w.to_string());
  TD_CHECK(dims_equal(x[x.rank() - 1], w[0]), Shape, "x {} has inner size {}, w {} has {}",
           x.to_string(), x[x.rank() - 1].to_string(), w.to_string(), w[0].to_string());
  check_zeros(c, w[1]);
  Shape y = x;
  y[y.rank() - 1] = w[1];
  c.out[0] = Spec(DType::i32, y, c.in[0].device);
}

double sum_flops(const InferCall& c, Dim depth) {
  const Shape& y = c.out[0].shape;
  return y.is_symbolic() || depth.is_symbolic()
             ? 0
             : 2.0 * static_cast<double>(y.numel().value()) * static_cast<double>(depth.value());
}
double integer_matmul_flops(const InferCall& c) { return sum_flops(c, c.in[1][0]); }

// Only x is batched: a matmul of more rows.
void integer_matmul_batch(BatchCall& c) {
  for (int i = 1; i < c.n_in(); ++i) c.by_slices |= c.has(i) && c.batched[static_cast<size_t>(i)];
  const auto in = [&](int i) { return c.has(i) ? c.in[static_cast<size_t>(i)] : Tensor(); };
  if (!c.by_slices) c.out[0] = matmul_integer(in(0), in(1), in(2), in(3), c.node.loc);
}

const Array* present(const KernelCall& c, int i) {
  return i < c.n_in && c.in[i].present() ? &c.in[i] : nullptr;
}

// Numbers and sums wrap in 64 bits, of which results keep the lower half.
using Wide = detail::Dense<uint64_t>;

uint64_t zero_at(const KernelCall& c, int input, int64_t i) {
  return static_cast<uint64_t>(int64_t{integer_zero(present(c, input), i)});
}
// The codes of x less its zero point.
void centre(const KernelCall& c, const Wide& x) {
  const uint64_t zero = zero_at(c, 2, 0);
  for (int64_t i = 0; i < x.size(); ++i) x[i] -= zero;
}

void integer_matmul_reference(const KernelCall& c) {
  const Wide x(c.in[0]), y(c.out[0].numel);
  centre(c, x);
  const IntegerWeight w(c.in[1]);
  const int64_t rows = w.c > 0 && w.o > 0 ? c.out[0].numel / w.o : 0;
  parallel_for(0, rows, 1 + 4096 / (w.c * w.o + 1), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t j = 0; j < w.o; ++j) {
        const uint64_t zero = zero_at(c, 3, j);
        uint64_t sum = 0;
        for (int64_t k = 0; k < w.c; ++k)
          sum += x[i * w.c + k] * (static_cast<uint64_t>(w.at(j * w.step_o + k * w.step_c)) - zero);
        y[i * w.o + j] = sum;
      }
  });
  y.store(c.out[0]);
}

// ---- convolutions

void integer_conv_infer(InferCall& c) {
  check_bytes(c);
  InferCall plain(op::conv, c.attrs);
  for (int i = 0; i < 2; ++i) {
    plain.in.push_back(Spec(DType::i32, c.in[i].shape, c.in[i].device));
    plain.present.push_back(1);
  }
  op::conv.infer_fn(plain);
  check_zeros(c, c.in[1][0]);
  c.out[0] = Spec(DType::i32, plain.out[0].shape, c.in[0].device);
}
double integer_conv_flops(const InferCall& c) {
  Dim depth = 1;
  for (int d = 1; d < c.in[1].rank(); ++d) depth = depth * c.in[1][d];
  return sum_flops(c, depth);
}

void integer_conv_reference(const KernelCall& c) {
  const Wide x(c.in[0]), w(c.in[1]), y(c.out[0].numel);
  centre(c, x);
  const int64_t o = c.in[1].shape[0], size = o > 0 ? w.size() / o : 0;
  for (int64_t i = 0; i < w.size(); ++i) w[i] -= zero_at(c, 3, i / size);
  Strides strides[3];
  Array arrays[3] = {c.in[0], c.in[1], c.out[0]};
  uint64_t* data[3] = {x.get(), w.get(), y.get()};
  for (int i = 0; i < 3; ++i) {
    Array& a = arrays[i];
    int64_t step = 1;
    for (int d = a.rank; d-- > 0; step *= a.shape[d]) strides[i][d] = step;
    a.data = data[i];
    a.strides = strides[i].data();
    a.dtype = DType::i64;
    a.contiguous = true;
  }
  op::conv.reference_fn({op::conv, c.attrs, arrays, 2, arrays + 2, 1});
  y.store(c.out[0]);
}
void by_slices(BatchCall& c) { c.by_slices = true; }

// ---- packed weights

int64_t size_at(const Shape& s, int d) { return s[d].value(); }
int64_t panel_count(int64_t columns) { return (columns + kPackedPanel - 1) / kPackedPanel; }

void pack_integer_infer(InferCall& c) {
  const Shape& w = c.in[0].shape;
  TD_CHECK(is_byte(c.in[0].dtype) && (w.rank() == 2 || w.rank() == 4), Internal,
           "{} is not a weight of 8 bits", c.in[0].to_string());
  const bool matrix = w.rank() == 2;
  const int64_t columns = size_at(w, matrix ? 1 : 0), segments = matrix ? 1 : size_at(w, 2);
  const int64_t depth = matrix ? size_at(w, 0) : size_at(w, 1) * size_at(w, 3);
  c.out[0] =
      Spec(DType::i8, Shape(panel_count(columns), segments, (depth + 1) / 2, 2 * kPackedPanel));
}

void pack_integer_reference(const KernelCall& c) {
  const IntegerWeight w(c.in[0]);
  parallel_for(0, w.panels(), 1 + 32768 / (w.panel_size() + 1), [&](int64_t first, int64_t last) {
    detail::pack_integer_panels(w, first, last, c.out[0].as<int8_t>() + first * w.panel_size());
  });
}

void check_packed(const InferCall& c) {
  const Spec& w = c.in[1];
  TD_CHECK(is_byte(c.in[0].dtype) && w.dtype == DType::i8 && w.rank() == 4 &&
               panel_count(c.get_attrs<PackedAttrs>().columns) == size_at(w.shape, 0),
           Internal, "x is {}, the packed weight {}", c.in[0].to_string(), w.to_string());
  if (c.has(3))
    TD_CHECK(c.in[3].dtype == DType::i32 && c.in[3].rank() > 0 &&
                 size_at(c.in[3].shape, c.in[3].rank() - 1) == c.get_attrs<PackedAttrs>().columns,
             Internal, "the bias is {}", c.in[3].to_string());
}
void packed_integer_matmul_infer(InferCall& c) {
  check_packed(c);
  Shape y = c.in[0].shape;
  TD_CHECK(y.rank() >= 1 && (size_at(y, y.rank() - 1) + 1) / 2 == size_at(c.in[1].shape, 2),
           Internal, "x is {}, the packed weight {}", y.to_string(), c.in[1].to_string());
  y[y.rank() - 1] = c.get_attrs<PackedAttrs>().columns;
  c.out[0] = Spec(DType::i32, y);
}
void packed_integer_conv_infer(InferCall& c) {
  check_packed(c);
  const auto& a = c.get_attrs<PackedAttrs>();
  TD_CHECK(c.in[0].rank() == 4, Internal, "{} is not an image", c.in[0].to_string());
  Shape y = c.in[0].shape;
  for (int d = 0; d < 2; ++d) {
    const int64_t room =
        size_at(y, d + 1) + a.padding[d].value() + a.padding_end[d].value() - a.kernel[d].value();
    TD_CHECK(room >= 0, Internal, "a kernel does not fit {}", y.to_string());
    y[d + 1] = room / a.stride[d].value() + 1;
  }
  y[3] = a.columns;
  c.out[0] = Spec(DType::i32, y);
}
double packed_integer_flops(const InferCall& c) {
  return sum_flops(c, c.in[1][1] * c.in[1][2] * 2);
}

constexpr OpDef sums(const char* name, Names in, const AttrsType* a, InferFn infer, CostFn flops) {
  return make_row(name, Family::contraction, Types::custom, in, a)
      .infer(infer)
      .flops(flops)
      .flag(kNotDifferentiable);
}

}  // namespace

namespace detail {

IntegerWeight::IntegerWeight(const Array& w) : data(w.data), is_signed(w.dtype == DType::i8) {
  const bool matrix = w.rank == 2;
  const auto dims = [&](const int64_t* of, int64_t none) {
    return matrix ? std::array<int64_t, 4>{of[1], of[0], none, none}
                  : std::array<int64_t, 4>{of[0], of[1], of[2], of[3]};
  };
  const auto shape = dims(w.shape, 1), steps = dims(w.strides, 0);
  o = shape[0], c = shape[1], kernel_h = shape[2], kernel_w = shape[3];
  step_o = steps[0], step_c = steps[1], step_h = steps[2], step_w = steps[3];
}

int32_t integer_zero(const Array* a, int64_t i) {
  if (!a) return 0;
  const int64_t at = a->numel == 1 ? 0 : i * a->strides[0];
  return a->dtype == DType::i8 ? a->as<int8_t>()[at] : a->as<uint8_t>()[at];
}

void pack_integer_panels(const IntegerWeight& w, int64_t first, int64_t last, int8_t* to) {
  const int64_t less = w.is_signed ? 0 : 128;
  for (int64_t p = first; p < last; ++p) {
    std::fill_n(to, w.panel_size(), int8_t(0));
    const int64_t columns = std::min(kPackedPanel, w.o - p * kPackedPanel);
    for (int64_t h = 0; h < w.kernel_h; ++h, to += w.pairs() * 2 * kPackedPanel) {
      int64_t k = 0;
      for (int64_t v = 0; v < w.kernel_w; ++v)
        for (int64_t i = 0; i < w.c; ++i, ++k) {
          int8_t* row = to + k / 2 * (2 * kPackedPanel) + k % 2;
          const int64_t at =
              p * kPackedPanel * w.step_o + i * w.step_c + h * w.step_h + v * w.step_w;
          for (int64_t j = 0; j < columns; ++j)
            row[2 * j] = static_cast<int8_t>(w.at(at + j * w.step_o) - less);
        }
    }
  }
}

}  // namespace detail

namespace op {
constinit const OpDef matmul_integer =
    sums("matmul_integer", {"x", "w", "x_zero?", "w_zero?"}, nullptr, integer_matmul_infer,
         integer_matmul_flops)
        .batch(integer_matmul_batch)
        .reference(integer_matmul_reference)
        .doc("Matrix product of u8 or i8, less their zero points, in i32.");
constinit const OpDef conv_integer =
    sums("conv_integer", {"x", "w", "x_zero?", "w_zero?"}, fields<ConvAttrs>(), integer_conv_infer,
         integer_conv_flops)
        .batch(by_slices)
        .reference(integer_conv_reference)
        .doc("Convolution of u8 or i8, less their zero points, in i32.");
constinit const OpDef pack_integer = index_row("pack_integer", {"w"}, nullptr)
                                         .infer(pack_integer_infer)
                                         .reference(pack_integer_reference)
                                         .flag(kNotDifferentiable | kWeightForm);
constinit const OpDef packed_integer_matmul =
    sums("packed_integer_matmul", {"x", "w", "x_zero?", "b?", "w_zero?"}, fields<PackedAttrs>(),
         packed_integer_matmul_infer, packed_integer_flops)
        .flag(kPackedSums);
constinit const OpDef packed_integer_conv =
    sums("packed_integer_conv", {"x", "w", "x_zero?", "b?", "w_zero?"}, fields<PackedAttrs>(),
         packed_integer_conv_infer, packed_integer_flops)
        .flag(kPackedSums | kChannelsLast);
}  // namespace op

std::span<const OpDef* const> integer_rows() {
  static constexpr const OpDef* kRows[] = {&op::matmul_integer, &op::conv_integer,
                                           &op::matmul_nbits};
  return kRows;
}

Tensor matmul_integer(Tensor x, Tensor w, Tensor x_zero, Tensor w_zero, SourceLocation loc) {
  return call(op::matmul_integer, nullptr, loc, std::move(x), std::move(w), std::move(x_zero),
              std::move(w_zero));
}
Tensor conv_integer(Tensor x, Tensor w, Tensor x_zero, Tensor w_zero, const ConvAttrs& attrs,
                    SourceLocation loc) {
  return call(op::conv_integer, &attrs, loc, std::move(x), std::move(w), std::move(x_zero),
              std::move(w_zero));
}

}  // namespace tandem
