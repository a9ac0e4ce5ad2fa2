// SPDX-License-Identifier: Apache-2.0
// In programs without gradients products and convolutions whose weight is stable read it packed
// (ops/packed.h). The packing itself is stable too: derive_values() takes it out of the calls.
// Convolutions work channels-last, between two permutations that channels_last() takes away where
// neighbours agree.
#include "tandem/compile/emit.h"
#include "tandem/compile/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/packed.h"

namespace tandem::compiler {
namespace {

constexpr int64_t kFewestProducts = 4096;  ///< of a weight: smaller ones are read as they lie
// Winograd pays from so many tiles and channels on, where few outputs of the last tiles are waste.
constexpr int64_t kFewestTiles = 12, kFewestChannels = 32;
constexpr double kMostWaste = 1.35;

size_t idx(int k) { return static_cast<size_t>(k); }

class Packing {
 public:
  explicit Packing(Program& p)
      : p_(p),
        e_(p),
        stable_(stable_values(p, p.weights_stay)),
        bf16_(runtime_of(op::packed_product_bf16).kernels[static_cast<int>(DeviceKind::cpu)]) {}

  void run() {
    e_.rewrite([this](const Instr& i) { return replace(i); });
  }

 private:
  static int operand(const Instr& i, size_t k) { return k < i.in.size() ? i.in[k].value : kNone; }
  const Spec& spec(int v) const { return p_.values[idx(v)].spec; }
  bool is_stable(int v) const { return v != kNone && idx(v) < stable_.size() && stable_[idx(v)]; }

  // All operands are f32 values (of products bf16 too) of some size, and the second one is stable.
  bool fits(const Instr& i) const {
    if (i.out.size() != 1 || i.in.size() < 2 || !is_stable(operand(i, 1)) ||
        is_stable(operand(i, 0)))
      return false;
    for (const Arg& a : i.in) {
      if (a.is_number) return false;
      if (a.value == kNone) continue;
      if (spec(a.value).dtype != spec(operand(i, 0)).dtype ||
          spec(a.value).shape.numel().value() == 0)
        return false;
    }
    if (operand(i, 0) == kNone) return false;
    const DType dtype = spec(operand(i, 0)).dtype;
    if (dtype != DType::f32 && !(dtype == DType::bf16 && bf16_ && i.op != &op::conv)) return false;
    return operand(i, 0) != kNone &&
           spec(operand(i, 1)).shape.numel().value() >= kFewestProducts / 16;
  }

  int replace(const Instr& i) {
    if (!i.op || !fits(i)) return kNone;
    if (i.op == &op::linear) return linear(i);
    if (i.op == &op::matmul) return matmul(i);
    if (i.op == &op::conv) return conv(i);
    return kNone;
  }

  // w [k, n] as it may be seen.
  int product(int x, int w, int bias) {
    PackedAttrs a;
    a.columns = e_.size(w, 1);
    if (spec(x).dtype == DType::bf16) {
      const int packed = e_.emit(op::pack_matrix_bf16, nullptr, nullptr, {w});
      return e_.emit(op::packed_product_bf16, fields<PackedAttrs>(), &a, {x, packed, bias});
    }
    const int packed = e_.emit(op::pack_matrix, nullptr, nullptr, {w});
    return e_.emit(op::packed_product, fields<PackedAttrs>(), &a, {x, packed, bias});
  }

  // Pairs along dimension k of the weight: there must be no rest.
  bool odd_bf16(const Instr& i, int k) const {
    const Spec& w = spec(operand(i, 1));
    return w.dtype == DType::bf16 && w.shape[k].value() % 2 != 0;
  }
  int linear(const Instr& i) {
    if (spec(operand(i, 1)).shape.numel().value() < kFewestProducts) return kNone;
    if (odd_bf16(i, 1)) return kNone;
    return product(operand(i, 0), e_.permute(operand(i, 1), {1, 0}), operand(i, 2));
  }

  int matmul(const Instr& i) {
    const auto& a = *static_cast<const MatmulAttrs*>(i.attrs.get());
    const int w = operand(i, 1);
    if (a.trans_a || spec(w).rank() != 2 || spec(w).shape.numel().value() < kFewestProducts ||
        odd_bf16(i, a.trans_b ? 1 : 0))
      return kNone;
    return product(operand(i, 0), a.trans_b ? e_.permute(w, {1, 0}) : w, kNone);
  }

  int conv(const Instr& i) {
    const auto& a = *static_cast<const ConvAttrs*>(i.attrs.get());
    const int x = operand(i, 0), w = operand(i, 1), bias = operand(i, 2);
    if (spec(x).rank() != 4) return kNone;
    PackedAttrs p;
    p.columns = e_.size(w, 0);
    bool plain = true, padded = false;
    for (int d = 0; d < 2; ++d) {
      if (a.dilation[d].value() != 1 || a.padding[d].value() < 0 || a.padding_end[d].value() < 0)
        return kNone;
      p.kernel.push_back(e_.size(w, d + 2));
      p.stride.push_back(a.stride[d]);
      p.padding.push_back(a.padding[d]);
      p.padding_end.push_back(a.padding_end[d]);
      plain = plain && a.stride[d].value() == 1;
      padded = padded || a.padding[d].value() || a.padding_end[d].value();
    }
    const int64_t channels = e_.size(x, 1);
    if (a.groups != 1 && !(a.groups == channels && p.columns == channels && square(p)))
      return kNone;
    const int in = e_.permute(x, {0, 2, 3, 1});
    const auto use = [&](const OpDef& pack, const OpDef& op) {
      const int packed = e_.emit(pack, nullptr, nullptr, {w});
      return e_.emit(op, fields<PackedAttrs>(), &p, {in, packed, bias});
    };
    int y;
    if (a.groups != 1)
      y = use(op::pack_depthwise, op::depthwise_conv);
    else if (plain && !padded && p.kernel[0].value() == 1 && p.kernel[1].value() == 1)
      y = product(in, e_.permute(e_.view(w, Shape(p.columns, channels)), {1, 0}), bias);
    else if (plain && winograd(p, spec(i.out[0]).shape, channels))
      y = use(op::pack_winograd, op::winograd_conv);
    else
      y = use(op::pack_conv, op::packed_conv);
    return e_.permute(y, {0, 3, 1, 2});
  }

  static bool square(const PackedAttrs& p) {
    return p.stride[0] == p.stride[1] && p.kernel[0].value() <= 16;
  }

  static bool winograd(const PackedAttrs& p, const Shape& y, int64_t channels) {
    if (p.kernel[0].value() != 3 || p.kernel[1].value() != 3 || channels < kFewestChannels ||
        p.columns < kFewestChannels)
      return false;
    const auto tiles = [](int64_t n) { return (n + kWinogradOut - 1) / kWinogradOut; };
    const int64_t h = y[2].value(), w = y[3].value();
    const int64_t count = tiles(h) * tiles(w);
    return y[0].value() * count >= kFewestTiles &&
           static_cast<double>(count * kWinogradOut * kWinogradOut) <=
               kMostWaste * static_cast<double>(h * w);
  }

  Program& p_;
  Emitter e_;
  std::vector<char> stable_;
  bool bf16_;
};

// Is there a kernel at all?
bool on_this_machine() {
  for (const OpDef* row :
       {&op::packed_product, &op::packed_conv, &op::depthwise_conv, &op::winograd_conv})
    if (!runtime_of(*row).kernels[static_cast<int>(DeviceKind::cpu)]) return false;
  return true;
}

}  // namespace

void pack_weights(Program& p) {
  if (!p.inference || !on_this_machine()) return;
  Packing(p).run();
}

}  // namespace tandem::compiler
