// SPDX-License-Identifier: Apache-2.0
// Fused attention in f16 and bf16 beside the CPU in f64: lengths that fill no block, heads that
// share keys, views of one projection, masks, lines without a key, and equal bits at each run.
#include <cmath>

#include "tandem/ops/nn/attention.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"

namespace tandem::gpu {
namespace {

struct Shape4 {
  const char* name;
  int64_t b, h, key_heads, l, s, e, f;
  bool causal;
  enum Mask { none, visible, added } mask = none;
  bool heads_inside = false;  ///< q, k and v are views of [b, l, 3, h, e]
  DType dtype = bfloat16;
};

constexpr Shape4 kShapes[] = {
    {"OneBlock", 1, 1, 1, 16, 16, 16, 16, false},
    {"Odd", 2, 3, 3, 77, 45, 40, 24, false},
    {"NoMultipleOfEight", 1, 2, 2, 33, 70, 13, 21, true},
    {"Causal", 1, 2, 2, 150, 150, 64, 64, true},
    {"CausalShortKeys", 1, 1, 1, 140, 60, 32, 32, true},
    {"CausalLongKeys", 1, 1, 1, 40, 200, 32, 32, true},
    {"Large", 1, 1, 1, 70, 130, 128, 128, false},
    {"LargeCausal", 1, 2, 1, 90, 90, 96, 80, true},
    {"Shared", 2, 6, 2, 50, 66, 32, 32, true},
    {"OneKeyHead", 1, 4, 1, 40, 40, 16, 16, false},
    {"Mask", 2, 2, 2, 37, 52, 32, 32, false, Shape4::visible},
    {"AddedMask", 2, 2, 1, 37, 52, 32, 32, false, Shape4::added},
    {"MaskAndCausal", 1, 2, 2, 70, 70, 64, 64, true, Shape4::visible},
    {"Views", 2, 3, 3, 45, 45, 32, 32, true, Shape4::none, true},
    {"Half", 1, 2, 2, 70, 70, 64, 64, true, Shape4::none, false, float16},
    {"HalfMask", 1, 2, 1, 40, 50, 72, 64, false, Shape4::added, false, float16},
};

void PrintTo(const Shape4& z, std::ostream* out) { *out << z.name; }

struct Inputs {
  Tensor q, k, v, mask, gy;
  Tensor projection;  ///< [b, l, 3, h, e], what q, k and v are views of

  void make_views() {
    if (!projection.defined()) return;
    q = projection.select(2, 0).transpose(1, 2);
    k = projection.select(2, 1).transpose(1, 2);
    v = projection.select(2, 2).transpose(1, 2);
  }
  Inputs on(Device device, DType dtype) const {
    const auto there = [&](const Tensor& t) {
      return !t.defined() ? t : (is_floating(t.dtype()) ? t.to(dtype) : t).to(device);
    };
    Inputs i{there(q), there(k), there(v), there(mask), there(gy), there(projection)};
    i.make_views();
    return i;
  }
};

// Whole sixteenths, so that all dtypes hold the same numbers.
Tensor sixteenths(Shape shape) { return floor(randn(std::move(shape)) * 8.0) / 16.0; }

Inputs inputs_of(const Shape4& z) {
  Inputs i;
  if (z.heads_inside) {
    i.projection = sixteenths({z.b, z.l, 3, z.h, z.e});
    i.make_views();
  } else {
    i.q = sixteenths({z.b, z.h, z.l, z.e});
    i.k = sixteenths({z.b, z.key_heads, z.s, z.e});
    i.v = sixteenths({z.b, z.key_heads, z.s, z.f});
  }
  i.gy = sixteenths({z.b, z.h, z.l, z.f});
  if (z.mask == Shape4::visible) {
    i.mask = rand({z.b, 1, z.l, z.s}) > 0.3;
    i.mask = i.mask & (arange(z.l).reshape({z.l, 1}) != 3);  // a line without a key
  } else if (z.mask == Shape4::added) {
    i.mask = sixteenths({z.b, 1, 1, z.s});
  }
  return i;
}

struct Results {
  Tensor y, lse, gq, gk, gv;
};

Results run_on(const Inputs& i, const Shape4& z) {
  AttentionAttrs attrs{z.causal, 0, false};
  const SourceLocation here = SourceLocation::here();
  const Tensor &q = i.q, &k = i.k, &v = i.v, &mask = i.mask;
  Results r;
  Tensor out[kMaxOpOuts];
  Operand ins[] = {Operand(q, here), Operand(k, here), Operand(v, here), Operand(mask, here)};
  apply(op::attention, &attrs, ins, out, here, {.hidden = true});
  r.y = out[0];
  r.lse = out[1];
  Operand back[] = {Operand(i.gy, here), Operand(q, here),       Operand(k, here),
                    Operand(v, here),    Operand(r.y, here),     Operand(r.lse, here),
                    Operand(mask, here), Operand(Tensor(), here)};
  apply(op::attention_backward, &attrs, back, out, here);
  r.gq = out[0];
  r.gk = out[1];
  r.gv = out[2];
  return r;
}

void expect_near(const Tensor& got, const Tensor& want, double unit, const char* what) {
  const Tensor a = got.cpu().to(float64), b = want.to(float64);
  ASSERT_EQ(a.shape().to_string(), b.shape().to_string()) << what;
  const Tensor infinite = b == -INFINITY;
  EXPECT_TRUE(((a == -INFINITY) == infinite).all().item<bool>()) << what;
  const double size = where(infinite, 0.0, b).abs().amax().item<double>();
  const double off = where(infinite, 0.0, a - b).abs().amax().item<double>();
  EXPECT_LE(off, 4 * unit * std::max(size, 1e-3)) << what;
}

class FusedAttention : public testing::TestWithParam<std::tuple<const char*, Shape4>> {
 protected:
  void SetUp() override {
    init();
    const FoundDevice found = device_or_reason(std::get<0>(GetParam()));
    if (!found.device) GTEST_SKIP() << found.reason;
    device_ = *found.device;
    manual_seed(3);
    reset_host_runs();
  }
  Device device_;
};

TEST_P(FusedAttention, FollowsF64) {
  const Shape4& z = std::get<1>(GetParam());
  const Inputs i = inputs_of(z);
  const Inputs there = i.on(device_, z.dtype);
  const Results got = run_on(there, z), again = run_on(there, z);
  const Results want = run_on(i.on(Device{}, float64), z);
  const double unit = z.dtype == float16 ? 0x1p-10 : 0x1p-7;
  const struct {
    const char* name;
    const Tensor &got, &again, &want;
  } parts[] = {{"y", got.y, again.y, want.y},
               {"lse", got.lse, again.lse, want.lse},
               {"gq", got.gq, again.gq, want.gq},
               {"gk", got.gk, again.gk, want.gk},
               {"gv", got.gv, again.gv, want.gv}};
  for (const auto& p : parts) {
    expect_near(p.got, p.want, unit, p.name);
    EXPECT_TRUE(same_bits(p.got, p.again)) << p.name;
  }
  const NoGradGuard no_grad;  // nobody wants lse
  AttentionAttrs attrs{z.causal, 0, false};
  const Tensor y =
      call(op::attention, &attrs, SourceLocation::here(), there.q, there.k, there.v, there.mask);
  EXPECT_TRUE(same_bits(y, got.y));
  EXPECT_EQ(host_runs().calls, 0);
  // Where the heads of q lie within its lines, those of the results do.
  if (z.heads_inside) {
    EXPECT_TRUE(got.y.transpose(1, 2).is_contiguous());
    EXPECT_TRUE(got.gk.transpose(1, 2).is_contiguous());
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, FusedAttention,
                         testing::Combine(testing::Values("cuda", "fake"),
                                          testing::ValuesIn(kShapes)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace tandem::gpu
