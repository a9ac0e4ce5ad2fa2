// SPDX-License-Identifier: Apache-2.0
// The rows of integer_depthwise.h: shapes, and the packing of weights.
#include "tandem/ops/matmul/integer_depthwise.h"

#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

constexpr int64_t kChannels = kIntegerDepthwiseBlock, kLine = kIntegerDepthwiseLine;

int64_t halves(int64_t n) { return (n + 1) / 2; }
int64_t blocks_of(int64_t channels) { return (channels + kChannels - 1) / kChannels; }

void pack_integer_depthwise_infer(InferCall& c) {
  const Spec& w = c.in[0];
  TD_CHECK((w.dtype == DType::u8 || w.dtype == DType::i8) && w.rank() == 4 &&
               w.shape[0].value() >= kChannels && w.shape[1].value() == 1,
           Internal, "{} is not the weight of a depthwise convolution of 8 bits", w.to_string());
  c.out[0] = Spec(DType::i16, Shape(blocks_of(w.shape[0].value()), w.shape[3],
                                    halves(w.shape[2].value()), kLine));
}

// Where a pair of channel `i` of a block lies in its line.
int64_t place_in_line(int64_t i) {
  constexpr int64_t kFour = 4;  // channels of 128 bits
  return (i / kFour % 2 * (kChannels / 2) + i / (2 * kFour) * kFour + i % kFour) * 2;
}

void pack_integer_depthwise_reference(const KernelCall& c) {
  const detail::IntegerWeight w(c.in[0]);
  const Array* zero = c.n_in > 1 && c.in[1].present() ? &c.in[1] : nullptr;
  auto* to = c.out[0].as<int16_t>();
  std::fill_n(to, c.out[0].numel, int16_t(0));
  for (int64_t b = 0; b < blocks_of(w.o); ++b)
    for (int64_t v = 0; v < w.kernel_w; ++v)
      for (int64_t h = 0; h < w.kernel_h; ++h) {
        int16_t* line = to + ((b * w.kernel_w + v) * halves(w.kernel_h) + h / 2) * kLine + h % 2;
        for (int64_t i = 0; i < kChannels; ++i) {
          const int64_t channel = std::min(b * kChannels, w.o - kChannels) + i;
          const int64_t code = w.at(channel * w.step_o + h * w.step_h + v * w.step_w);
          line[place_in_line(i)] = static_cast<int16_t>(code - detail::integer_zero(zero, channel));
        }
      }
}

void integer_depthwise_infer(InferCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  const Spec &x = c.in[0], &w = c.in[1];
  TD_CHECK((x.dtype == DType::u8 || x.dtype == DType::i8) && x.rank() == 4 &&
               w.dtype == DType::i16 && w.rank() == 4 && x.shape[3].value() == a.columns &&
               w.shape[0].value() == blocks_of(a.columns) &&
               w.shape[2].value() == halves(a.kernel[0].value()),
           Internal, "x is {}, the packed weight {}", x.to_string(), w.to_string());
  Shape y = x.shape;
  for (int d = 0; d < 2; ++d) {
    const int64_t room =
        y[d + 1].value() + a.padding[d].value() + a.padding_end[d].value() - a.kernel[d].value();
    TD_CHECK(room >= 0, Internal, "a kernel does not fit {}", x.to_string());
    y[d + 1] = room / a.stride[d].value() + 1;
  }
  c.out[0] = Spec(DType::i32, y);
}

double integer_depthwise_flops(const InferCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  return 2.0 * static_cast<double>(c.out[0].shape.numel().value()) *
         static_cast<double>(a.kernel[0].value() * a.kernel[1].value());
}

}  // namespace

namespace op {
constinit const OpDef pack_integer_depthwise =
    index_row("pack_integer_depthwise", {"w", "w_zero?"}, nullptr)
        .infer(pack_integer_depthwise_infer)
        .reference(pack_integer_depthwise_reference)
        .flag(kNotDifferentiable | kWeightForm);
constinit const OpDef integer_depthwise_conv =
    make_row("integer_depthwise_conv", Family::contraction, Types::custom,
             {"x", "w", "x_zero?", "b?"}, fields<PackedAttrs>())
        .infer(integer_depthwise_infer)
        .flops(integer_depthwise_flops)
        .flag(kNotDifferentiable | kPackedSums | kChannelsLast);
}  // namespace op

}  // namespace tandem
