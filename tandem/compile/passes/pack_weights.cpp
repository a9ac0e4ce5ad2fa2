// SPDX-License-Identifier: Apache-2.0
// In programs without gradients matmuls and convolutions whose weight is stable read it packed
// (ops/matmul/packed.h). The packing itself is stable too: derive_values() takes it out of the
// calls. Convolutions work channels-last, between two permutations that channels_last() takes away
// where neighbours agree. They sum in another order than the ops do, as matmuls of bf16 may:
// neither is packed where Program::same_bits. Matmuls of f32 keep the order (backend/cpu/gemm).
#include <algorithm>

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/matmul/packed.h"

namespace tandem::compiler {
namespace {

constexpr int64_t kFewestElements = 4096;      ///< of a weight: smaller ones are read as they lie
constexpr double kManyMultiplyAdds = 1 << 18;  ///< of a convolution, however small its weight

class Packing {
 public:
  explicit Packing(const Program& p)
      : stable_(stable_values(p, p.weights_stay)),
        whole_(p.values.size()),
        bf16_(!p.same_bits && has_own_kernel(op::packed_matmul_bf16, p.device)) {
    for (const Instr& i : p.instrs)
      if (i.op == &op::cast && i.out[0] != kNone && i.in[0].value != kNone)
        whole_[i.in[0].value] |= !is_floating(p.values[i.out[0]].spec.dtype);
  }

  using Form = ValueId (Packing::*)(Rewrite&) const;
  // The value that takes the root's place is what `form` makes, or it stays.
  Rule rule(const OpDef& op, Form form) const {
    return {row(op, {any(), any()}), [this, form](Rewrite& r) {
              if (!fits(r)) return;
              if (const ValueId y = (this->*form)(r); y != kNone) r.replace(y);
            }};
  }

  ValueId linear(Rewrite& r) const {
    const Instr& i = r.root();
    const ValueId w = i.in[1].value;
    if (r.spec(w).shape.numel().value() < kFewestElements || odd_bf16(r.spec(w), 1)) return kNone;
    return matmul_packed(r, i.in[0].value, r.emit().permute(w, {1, 0}), operand(i, 2));
  }

  ValueId matmul(Rewrite& r) const {
    const Instr& i = r.root();
    const auto& a = *static_cast<const MatmulAttrs*>(i.attrs.get());
    const ValueId w = i.in[1].value;
    if (a.trans_a || r.spec(w).rank() != 2 || r.spec(w).shape.numel().value() < kFewestElements ||
        odd_bf16(r.spec(w), a.trans_b ? 1 : 0))
      return kNone;
    return matmul_packed(r, i.in[0].value, a.trans_b ? r.emit().permute(w, {1, 0}) : w, kNone);
  }

  ValueId conv(Rewrite& r) const;
  ValueId conv_transpose(Rewrite& r) const;

 private:
  bool stable(ValueId v) const { return v.index() < stable_.size() && stable_[v]; }

  // All operands are f32 values (of matmuls bf16 too) of some size, and the second one is stable.
  bool fits(const Rewrite& r) const {
    const Instr& i = r.root();
    const ValueId x = i.in[0].value, w = i.in[1].value;
    if (i.out.size() != 1 || !stable(w) || stable(x)) return false;
    const DType dtype = r.spec(x).dtype;
    for (const Arg& a : i.in) {
      if (a.is_number) return false;
      if (a.value == kNone) continue;
      if (r.spec(a.value).dtype != dtype || r.spec(a.value).shape.numel().value() == 0)
        return false;
    }
    const bool image = i.op == &op::conv || i.op == &op::conv_backward_input;
    if (dtype != DType::f32 && !(dtype == DType::bf16 && bf16_ && !image)) return false;
    return r.spec(w).shape.numel().value() >= kFewestElements / 16 || (image && much(r, x, w));
  }
  // Each weight meets about every pixel.
  static bool much(const Rewrite& r, ValueId x, ValueId w) {
    const Shape& s = r.spec(x).shape;
    return static_cast<double>(r.spec(w).shape.numel().value()) *
               static_cast<double>(s.numel().value() / s[1].value()) >=
           kManyMultiplyAdds;
  }

  // w [k, n] as it may be seen.
  static ValueId matmul_packed(Rewrite& r, ValueId x, ValueId w, ValueId bias) {
    Emitter& e = r.emit();
    PackedAttrs a;
    a.columns = e.size(w, 1);
    const bool bf16 = r.spec(x).dtype == DType::bf16;
    const ValueId packed =
        e.emit(bf16 ? op::pack_matrix_bf16 : op::pack_matrix, nullptr, nullptr, {w});
    return e.emit(bf16 ? op::packed_matmul_bf16 : op::packed_matmul, fields<PackedAttrs>(), &a,
                  {x, packed, bias});
  }

  // Pairs along dimension k of the weight: there must be no rest.
  static bool odd_bf16(const Spec& w, int k) {
    return w.dtype == DType::bf16 && w.shape[k].value() % 2 != 0;
  }
  static bool square(const PackedAttrs& p) {
    return p.stride[0] == p.stride[1] && p.kernel[0].value() <= 16;
  }

  static bool winograd(const PackedAttrs& p, const Shape& y, int64_t channels) {
    return p.kernel[0].value() == 3 && p.kernel[1].value() == 3 &&
           transformed_tiles_pay(y, channels, kWinogradOut);
  }

  PerValue<char> stable_;
  PerValue<char> whole_;  ///< becomes integers: sums of whole numbers have to stay exact
  bool bf16_;
};

// x [n, c, h, w], or a line [n, c, l], which becomes an image one pixel wide.
ValueId as_image(Emitter& e, ValueId x) {
  const Shape s = e.shape(x);
  return s.rank() == 3 ? e.view(x, Shape(s[0], s[1], s[2], Dim(1))) : x;
}

ValueId Packing::conv(Rewrite& r) const {
  const Instr& i = r.root();
  Emitter& e = r.emit();
  const auto& a = *static_cast<const ConvAttrs*>(i.attrs.get());
  ValueId x = i.in[0].value, w = i.in[1].value;
  const ValueId bias = operand(i, 2);
  const int spatial = r.spec(x).rank() - 2;
  if (spatial > 2) return kNone;
  PackedAttrs p;
  p.columns = e.size(w, 0);
  bool plain = true, padded = false;
  for (int d = 0; d < spatial; ++d) {
    if (a.dilation[d].value() != 1 || a.padding[d].value() < 0 || a.padding_end[d].value() < 0)
      return kNone;
    p.kernel.push_back(e.size(w, d + 2));
    p.stride.push_back(a.stride[d]);
    p.padding.push_back(a.padding[d]);
    p.padding_end.push_back(a.padding_end[d]);
    plain = plain && a.stride[d].value() == 1;
    padded = padded || a.padding[d].value() || a.padding_end[d].value();
  }
  if (spatial == 1) {
    p.kernel.push_back(Dim(1));
    p.stride.push_back(p.stride[0]);  // of one pixel
    p.padding.push_back(Dim(0));
    p.padding_end.push_back(Dim(0));
  }
  const int64_t channels = e.size(x, 1);
  if (a.groups != 1 && !(a.groups == channels && p.columns == channels && square(p))) return kNone;
  const Shape out = e.shape(i.out[0]);
  x = as_image(e, x);
  w = as_image(e, w);
  const ValueId in = e.permute(x, {0, 2, 3, 1});
  const auto use = [&](const OpDef& pack, const OpDef& op) {
    const ValueId packed = e.emit(pack, nullptr, nullptr, {w});
    return e.emit(op, fields<PackedAttrs>(), &p, {in, packed, bias});
  };
  ValueId y;
  if (a.groups != 1)
    y = use(op::pack_depthwise, op::depthwise_conv);
  else if (plain && !padded && p.kernel[0].value() == 1 && p.kernel[1].value() == 1)
    y = matmul_packed(r, in, e.permute(e.view(w, Shape(p.columns, channels)), {1, 0}), bias);
  else if (plain && !whole_[i.out[0]] && spatial == 2 && winograd(p, out, channels))
    y = use(op::pack_winograd, op::winograd_conv);
  else
    y = use(op::pack_conv, op::packed_conv);
  y = e.permute(y, {0, 3, 1, 2});
  return spatial == 1 ? e.view(y, out) : y;
}

// Windows that neither overlap nor leave gaps: each pixel of x makes a block of pixels by itself,
// all of them by one matmul.
ValueId Packing::conv_transpose(Rewrite& r) const {
  const Instr& i = r.root();
  Emitter& e = r.emit();
  const auto& a = *static_cast<const ConvAttrs*>(i.attrs.get());
  const ValueId x = i.in[0].value, w = i.in[1].value;
  if (r.spec(x).rank() != 4 || a.groups != 1) return kNone;
  for (int d = 0; d < 2; ++d)
    if (a.dilation[d].value() != 1 || a.padding[d].value() != 0 || a.padding_end[d].value() != 0 ||
        a.stride[d].value() != e.size(w, d + 2) ||
        a.size[d].value() != e.size(x, d + 2) * a.stride[d].value())
      return kNone;
  const int64_t n = e.size(x, 0), c = e.size(x, 1), h = e.size(x, 2), wide = e.size(x, 3),
                o = e.size(w, 1), kh = e.size(w, 2), kw = e.size(w, 3);
  const ValueId matrix = e.view(e.permute(w, {0, 2, 3, 1}), Shape(c, kh * kw * o));
  const ValueId blocks = matmul_packed(r, e.permute(x, {0, 2, 3, 1}), matrix, kNone);
  const ValueId rows = e.permute(e.view(blocks, Shape(n, h, wide, kh, kw, o)), {0, 1, 3, 2, 4, 5});
  return e.permute(e.view(rows, Shape(n, h * kh, wide * kw, o)), {0, 3, 1, 2});
}

// Are there kernels of packed weights at all?
bool takes_packed_weights(Device device) {
  for (const OpDef* row :
       {&op::packed_matmul, &op::packed_conv, &op::depthwise_conv, &op::winograd_conv})
    if (!has_own_kernel(*row, device)) return false;
  return true;
}

}  // namespace

bool transformed_tiles_pay(const Shape& y, int64_t channels, int64_t out) {
  constexpr int64_t kFewestTiles = 12, kFewestChannels = 24;
  constexpr double kMostWaste = 1.35;
  const auto tiles = [out](int64_t n) { return (n + out - 1) / out; };
  const int64_t h = y[2].value(), w = y[3].value(), count = tiles(h) * tiles(w);
  return std::min(channels, y[1].value()) >= kFewestChannels &&
         y[0].value() * count >= kFewestTiles &&
         static_cast<double>(count * out * out) <= kMostWaste * static_cast<double>(h * w);
}

void pack_weights(Program& p) {
  if (!p.inference || !takes_packed_weights(p.device)) return;
  const Packing packing(p);
  std::vector<Rule> rules = {packing.rule(op::linear, &Packing::linear),
                             packing.rule(op::matmul, &Packing::matmul)};
  if (!p.same_bits) {
    rules.push_back(packing.rule(op::conv, &Packing::conv));
    rules.push_back(packing.rule(op::conv_backward_input, &Packing::conv_transpose));
  }
  Rewriter(p).run(std::move(rules));
}

}  // namespace tandem::compiler
