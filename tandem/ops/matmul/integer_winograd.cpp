// SPDX-License-Identifier: Apache-2.0
// The rows of integer_winograd.h: shapes, and the transform of weights.
#include "tandem/ops/matmul/integer_winograd.h"

#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

constexpr int64_t kWinogradLine = 2 * kPackedPanel;  ///< two rows of a panel, side by side

void pack_integer_winograd_infer(InferCall& c) {
  const Spec& w = c.in[0];
  TD_CHECK((w.dtype == DType::u8 || w.dtype == DType::i8) && w.rank() == 4 &&
               w.shape[2].value() == 3 && w.shape[3].value() == 3,
           Internal, "{} is not a 3x3 kernel of 8 bits", w.to_string());
  const int64_t panels = (w.shape[0].value() + kPackedPanel - 1) / kPackedPanel;
  c.out[0] = Spec(DType::i16, Shape(panels, kIntegerWinogradMatmuls, (w.shape[1].value() + 1) / 2,
                                    kWinogradLine));
}

// y = 2 G x with the rows of G: (1, 0, 0), (1, 1, 1) / 2, (1, -1, 1) / 2, (0, 0, 1).
void times_doubled_g(int64_t x0, int64_t x1, int64_t x2, int64_t (&y)[4]) {
  y[0] = 2 * x0;
  y[1] = x0 + x1 + x2;
  y[2] = x0 - x1 + x2;
  y[3] = 2 * x2;
}

void pack_integer_winograd_reference(const KernelCall& c) {
  const detail::IntegerWeight w(c.in[0]);
  const int64_t less = w.is_signed ? 0 : 128, pairs = (w.c + 1) / 2;
  auto* to = c.out[0].as<int16_t>();
  parallel_for(
      0, w.panels(), 1 + 4096 / (w.c * kPackedPanel + 1), [&](int64_t first, int64_t last) {
        std::fill(to + first * kIntegerWinogradMatmuls * pairs * kWinogradLine,
                  to + last * kIntegerWinogradMatmuls * pairs * kWinogradLine, int16_t(0));
        for (int64_t o = first * kPackedPanel; o < std::min(last * kPackedPanel, w.o); ++o)
          for (int64_t k = 0; k < w.c; ++k) {
            int64_t t[3][4], u[4];
            const auto at = [&](int64_t i, int64_t j) {
              return w.at(o * w.step_o + k * w.step_c + i * w.step_h + j * w.step_w) - less;
            };
            for (int64_t j = 0; j < 3; ++j) times_doubled_g(at(0, j), at(1, j), at(2, j), t[j]);
            int16_t* line = to +
                            o / kPackedPanel * kIntegerWinogradMatmuls * pairs * kWinogradLine +
                            k / 2 * kWinogradLine + o % kPackedPanel * 2 + k % 2;
            for (int64_t i = 0; i < kIntegerWinogradIn; ++i) {
              times_doubled_g(t[0][i], t[1][i], t[2][i], u);
              for (int64_t j = 0; j < kIntegerWinogradIn; ++j)
                line[(i * kIntegerWinogradIn + j) * pairs * kWinogradLine] =
                    static_cast<int16_t>(u[j]);
            }
          }
      });
}

void integer_winograd_infer(InferCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  const Spec &x = c.in[0], &w = c.in[1];
  TD_CHECK((x.dtype == DType::u8 || x.dtype == DType::i8) && x.rank() == 4 &&
               w.dtype == DType::i16 && w.rank() == 4 &&
               w.shape[2].value() == (x.shape[3].value() + 1) / 2 &&
               w.shape[0].value() == (a.columns + kPackedPanel - 1) / kPackedPanel,
           Internal, "x is {}, the packed weight {}", x.to_string(), w.to_string());
  Shape y = x.shape;
  for (int d = 0; d < 2; ++d)
    y[d + 1] = y[d + 1].value() + a.padding[d].value() + a.padding_end[d].value() - 2;
  y[3] = a.columns;
  c.out[0] = Spec(DType::i32, y);
}

double integer_winograd_flops(const InferCall& c) {  // of the equivalent convolution
  return 18.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(c.in[0].shape[3].value());
}

}  // namespace

namespace op {
constinit const OpDef pack_integer_winograd = index_row("pack_integer_winograd", {"w"}, nullptr)
                                                  .infer(pack_integer_winograd_infer)
                                                  .reference(pack_integer_winograd_reference)
                                                  .flag(kNotDifferentiable | kWeightForm);
constinit const OpDef integer_winograd_conv =
    make_row("integer_winograd_conv", Family::contraction, Types::custom,
             {"x", "w", "x_zero?", "b?"}, fields<PackedAttrs>())
        .infer(integer_winograd_infer)
        .flops(integer_winograd_flops)
        .flag(kNotDifferentiable | kPackedSums | kChannelsLast);
}  // namespace op

}  // namespace tandem
