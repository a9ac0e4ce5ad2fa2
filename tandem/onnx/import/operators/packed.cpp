// SPDX-License-Identifier: Apache-2.0
// Matmuls with weights of 2, 4 or 8 bits that are packed in bytes, a scale per block (domain
// com.microsoft): MatMulNBits, GatherBlockQuantized, MatMulBnb4. MatMulNBits is the row
// matmul_nbits unless columns are reordered or zero points are numbers; other constant weights
// become numbers once in a trace.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/operators/quant_internal.h"
#include "tandem/ops/matmul/nbits.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

namespace {

int64_t bits_of(const OnnxCall& c) {
  const int64_t bits = c.attr("bits", 4);
  TD_CHECK(bits == 2 || bits == 4 || bits == 8, Unsupported, "expected 2, 4 or 8 bits, got {}",
           bits);
  return bits;
}

int64_t block_of(const OnnxCall& c, int64_t otherwise) {
  const int64_t n = c.attr("block_size", otherwise);
  TD_CHECK(n >= 16 && n <= (int64_t{1} << 20) && (n & (n - 1)) == 0, Value,
           "expected a block_size that is a power of two from 16 on, got {}", n);
  return n;
}

/// A positive size of a matrix.
int64_t matrix_size(const OnnxCall& c, const char* name) {
  const int64_t n = c.attr(name, 0);
  TD_CHECK(n > 0 && n <= (int64_t{1} << 28), Value, "expected a positive size {}, got {}", name, n);
  return n;
}

struct PackedMatrix {
  int64_t n, k, block, bits;
  int64_t blocks() const { return (k + block - 1) / block; }

  /// [n, k] from the packed weights, scales, zero points and the block of each column, the last two
  /// of which may be undefined.
  Tensor numbers(const std::vector<Tensor>& in) const {
    const int64_t bytes = block * bits / 8;
    check(in[0], n * blocks() * bytes, "weights");
    check(in[1], n * blocks(), "scales");
    check_onnx_size(Shape(n, blocks() * block), sizeof(float));
    Tensor w = unpack_codes(in[0].reshape({n, blocks(), bytes}), bits).to(DType::f32);
    Tensor scale = in[1].reshape({n, blocks()}).to(DType::f32), zero = zero_points(in[2]);
    w = w.reshape({n, blocks() * block}).narrow(1, 0, k);
    if (in[3].defined()) {
      TD_CHECK(in[3].numel() >= k, Shape, "expected {} columns' blocks, got {}", k, in[3].numel());
      const Tensor at = in[3].reshape({-1}).narrow(0, 0, k).to(DType::i64);
      scale = index_select(scale, 1, at);
      if (zero.defined()) zero = index_select(zero, 1, at);
    } else {
      auto spread = [&](const Tensor& t) { return repeat_interleave(t, block, 1).narrow(1, 0, k); };
      scale = spread(scale);
      if (zero.defined()) zero = spread(zero);
    }
    w = zero.defined() ? w - zero : w - static_cast<double>(int64_t{1} << (bits - 1));
    return contiguous(w * scale);
  }

  /// The operands of matmul_nbits, where its layout can say them.
  bool packed(const Tensor& zero, const Tensor& at) const {
    return !at.defined() && (!zero.defined() || zero.dtype() == DType::u8);
  }
  Tensor codes(const Tensor& bytes) const {
    check(bytes, n * blocks() * block * bits / 8, "weights");
    return bytes.reshape({n, blocks(), block * bits / 8});
  }
  Tensor scales(const Tensor& t) const {
    check(t, n * blocks(), "scales");
    return t.reshape({n, blocks()}).to(DType::f32);
  }
  Tensor zeros(const Tensor& z) const {
    const int64_t bytes = (blocks() * bits + 7) / 8;
    check(z, n * bytes, "zero points");
    return z.reshape({n, bytes});
  }

 private:
  static void check(const Tensor& t, int64_t wanted, const char* what) {
    TD_CHECK(t.numel() == wanted, Shape, "expected {} elements of {}, got {}", wanted, what,
             t.shape().to_string());
  }
  /// [n, blocks]; numbers, or packed like the weights, each row in whole bytes.
  Tensor zero_points(const Tensor& z) const {
    if (!z.defined()) return z;
    if (is_floating(z.dtype())) {
      check(z, n * blocks(), "zero points");
      return z.reshape({n, blocks()}).to(DType::f32);
    }
    const int64_t bytes = (blocks() * bits + 7) / 8;
    check(z, n * bytes, "zero points");
    return unpack_codes(z.reshape({n, bytes}), bits).narrow(1, 0, blocks()).to(DType::f32);
  }
};

/// x times the transposed w [n, k], computed in f32.
Tensor times(const Tensor& x, const Tensor& w, const Tensor& bias) {
  TD_CHECK(x.dim() >= 1 && x.size(-1) == w.size(1), Shape, "expected [..., {}], got {}", w.size(1),
           x.shape().to_string());
  return linear(x.to(DType::f32), w, bias.defined() ? bias.to(DType::f32) : bias).to(x.dtype());
}

void matmul_nbits(OnnxCall& c) {
  TD_CHECK(c.attr("weight_prepacked", 0) == 0, Unsupported,
           "its weights are stored in an order for one kind of device");
  const PackedMatrix m{matrix_size(c, "N"), matrix_size(c, "K"), block_of(c, 0), bits_of(c)};
  if (m.packed(c.x_or_none(3), c.x_or_none(4))) {
    const Tensor x = c.x(0), zero = c.x_or_none(3), bias = c.x_or_none(5);
    const Tensor scale =
        onnx_known(c, {2}, [&](const std::vector<Tensor>& in) { return m.scales(in[0]); });
    Tensor y = matmul_nbits(x.to(DType::f32),
                            {m.codes(c.x(1)), scale, zero.defined() ? m.zeros(zero) : Tensor(),
                             m.bits, c.attr("accuracy_level", 0)});
    if (bias.defined()) y = y + bias.to(DType::f32);
    return c.set(0, y.to(x.dtype()));
  }
  const Tensor w =
      onnx_known(c, {1, 2, 3, 4}, [&](const std::vector<Tensor>& in) { return m.numbers(in); });
  c.set(0, times(c.x(0), w, c.x_or_none(5)));
}

/// One of the 16 numbers that 4 bits stand for: FP4 and NF4 of QLoRA (arXiv 2305.14314).
Tensor code_book(int64_t kind) {
  TD_CHECK(kind == 0 || kind == 1, Value, "expected the quant_type 0 or 1, got {}", kind);
  static const std::vector<float> kFp4{
      0.0f,  5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
      -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
  static const std::vector<float> kNf4{-1.0f,
                                       -0.6961928009986877f,
                                       -0.5250730514526367f,
                                       -0.39491748809814453f,
                                       -0.28444138169288635f,
                                       -0.18477343022823334f,
                                       -0.09105003625154495f,
                                       0.0f,
                                       0.07958029955625534f,
                                       0.16093020141124725f,
                                       0.24611230194568634f,
                                       0.33791524171829224f,
                                       0.44070982933044434f,
                                       0.5626170039176941f,
                                       0.7229568362236023f,
                                       1.0f};
  return tensor(kind ? kNf4 : kFp4);
}

void matmul_bnb4(OnnxCall& c) {
  const int64_t n = matrix_size(c, "N"), k = matrix_size(c, "K"), block = block_of(c, 0);
  const int64_t kind = c.attr("quant_type", -1), all = n * k;
  const Tensor w = onnx_known(c, {1, 2}, [&](const std::vector<Tensor>& in) {
    const Tensor &bytes = in[0], &scales = in[1];
    TD_CHECK(bytes.numel() == (all + 1) / 2 && scales.numel() == (all + block - 1) / block, Shape,
             "weights {} with scales {} are not [{}, {}] in blocks of {}",
             bytes.shape().to_string(), scales.shape().to_string(), n, k, block);
    check_onnx_size(Shape(n, k), sizeof(float));
    // The first of two numbers is in the upper bits.
    const Tensor pairs = flip(unpack_codes(bytes.reshape({-1, 1}), 4), {1});
    const Tensor codes = pairs.reshape({-1}).narrow(0, 0, all).to(DType::i64);
    const Tensor scale = repeat_interleave(scales.reshape({-1}).to(DType::f32), block, 0);
    return (index_select(code_book(kind), 0, codes) * scale.narrow(0, 0, all)).reshape({n, k});
  });
  const Tensor x = c.x(0);
  if (c.attr("transB", 1)) return c.set(0, times(x, w, {}));
  c.set(0, matmul(x.to(DType::f32), w).to(x.dtype()));
}

/// Rows of a table at `index`, and zeros where there is none.
struct TakenRows {
  Tensor flat;    ///< positions in the axis, one-dimensional
  Tensor inside;  ///< whether there is such a row
  TakenRows(const Tensor& index, int64_t n) {
    const Tensor i = index.to(DType::i64).reshape({-1});
    inside = logical_and(i >= -n, i < n);
    flat = where(inside, where(i < 0, i + n, i), 0);
  }
};

void gather_block_quantized(OnnxCall& c) {
  const OnnxType type = c.type(0);
  const bool bytes = type == OnnxType::u8, floats = info_of(type).floating;
  const int64_t bits = bytes ? bits_of(c) : 8;
  const Tensor data = c.x(0), index = c.x(1);
  const int axis = c.axis("gather_axis", 0, data.dim()),
            across = c.axis("quantize_axis", 1, data.dim());
  TD_CHECK(axis != across && (!bytes || axis == 0), Unsupported,
           "gathers along {} what is quantised along {}", axis, across);
  const int64_t block =
      floats && c.attr("block_size", 128) == 0 ? data.size(across) : block_of(c, 128);
  const TakenRows rows(index, data.size(axis));
  auto taken = [&](const Tensor& t) {
    return t.size(axis) == 1 && data.size(axis) != 1 ? t : index_select(t, axis, rows.flat);
  };
  Tensor y = unpack_codes(taken(data), bits).to(DType::f32);
  Tensor scale = taken(c.x(2)).to(DType::f32), zero;
  if (c.has(3)) {
    zero = unpack_codes(taken(c.x(3)), bits).to(DType::f32);
    zero = zero.narrow(across, 0, scale.size(across));
    y = y - onnx_beside(zero, y, across, block);
  } else if (bytes) {
    y = y - static_cast<double>(int64_t{1} << (bits - 1));
  }
  y = y * onnx_beside(scale, y, across, block);
  Shape beside, s;
  for (int d = 0; d < y.dim(); ++d) {
    beside.push_back(d == axis ? y.shape(d) : Dim(1));
    if (d != axis) s.push_back(y.shape(d));
  }
  y = where(rows.inside.reshape(beside), y, 0);
  for (int d = 0; d < index.dim(); ++d) s.insert(axis + d, index.shape(d));
  c.set(0, y.reshape(s).to(c.x(2).dtype()));
}

}  // namespace

std::span<const OnnxRow> onnx_packed_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxMicrosoft,
       "MatMulNBits",
       1,
       0,
       matmul_nbits,
       {6, 1, "K N bits block_size weight_prepacked accuracy_level"},
       &op::matmul_nbits,
       export_matmul_nbits},
      {kOnnxMicrosoft,
       "MatMulBnb4",
       1,
       0,
       matmul_bnb4,
       {3, 1, "K N block_size quant_type transB ~training_mode"}},
      {kOnnxMicrosoft,
       "GatherBlockQuantized",
       1,
       0,
       gather_block_quantized,
       {4, 1, "bits block_size gather_axis quantize_axis"}},
  };
  return kRows;
}

}  // namespace tandem::onnx
