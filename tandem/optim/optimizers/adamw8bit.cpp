// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/optimizers/adamw8bit.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/index/index.h"
#include "tandem/ops/index/search.h"
#include "tandem/ops/nn/update.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::optim {
namespace {

constexpr int64_t kBlock = 256;
constexpr int kExponents = 7;  ///< decades below 1 that the codes cover

/// The numbers of the dynamic data type in order, in [-1, 1] or in [0, 1]: for each decade twice as
/// many as for the one below it, the means of equal parts of it; 0 and 1.
std::vector<float> dynamic_numbers(bool is_signed) {
  std::vector<float> out{0, 1};
  for (int i = 0; i < kExponents; ++i) {
    const int parts = 1 << (is_signed ? i : i + 1);
    for (int k = 0; k < parts; ++k) {
      const double middle = 0.1 + 0.9 * (k + 0.5) / parts;
      const auto v = static_cast<float>(std::pow(10.0, i - (kExponents - 1)) * middle);
      out.push_back(v);
      if (is_signed) out.push_back(-v);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The data type of a moment.
struct Codes {
  explicit Codes(bool is_signed) : numbers(dynamic_numbers(is_signed)) {
    zero = std::find(numbers.begin(), numbers.end(), 0.0f) - numbers.begin();
    for (size_t i = 1; i < numbers.size(); ++i)
      borders.push_back(0.5f * (numbers[i - 1] + numbers[i]));
  }
  std::vector<float> numbers, borders;
  int64_t zero = 0;
};
const Codes& codes_of(bool is_signed) {
  static const Codes kSigned(true), kUnsigned(false);
  return is_signed ? kSigned : kUnsigned;
}

int64_t blocks_of(int64_t n) { return (n + kBlock - 1) / kBlock; }
Tensor values(const std::vector<float>& v) {
  const Tensor t = tensor(v);
  return is_tracing() ? constant(t) : t;
}

// What the codes stand for, in the shape of the parameter.
Tensor decoded(const Tensor& codes, const Tensor& absmax, bool is_signed, const Shape& shape) {
  const Tensor table = values(codes_of(is_signed).numbers).to(codes.device());
  const Tensor v = gather(table, 0, codes.to(DType::i64));
  const Tensor all = v.reshape({-1, kBlock}) * absmax.unsqueeze(1);
  return all.reshape({-1}).narrow(0, 0, shape.numel().value()).reshape(shape);
}

struct Encoded {
  Tensor codes, absmax;
};
Encoded encoded(const Tensor& v, bool is_signed) {
  const int64_t n = v.numel(), blocks = blocks_of(n);
  const Tensor flat = pad(v.reshape({-1}), {0, blocks * kBlock - n}).reshape({blocks, kBlock});
  const Tensor absmax = amax(abs(flat), {1});
  const Tensor share = flat / where(absmax > 0, absmax, 1.0).unsqueeze(1);
  Tensor code = bucketize(share, values(codes_of(is_signed).borders).to(v.device()), true);
  if (!is_signed) code = where(logical_and(flat > 0, code == 0), 1, code);
  return {code.to(DType::u8).reshape({-1}), absmax};
}

}  // namespace

AdamW8bit::AdamW8bit(ParamList params, AdamW8bitOptions o) : Optimizer("AdamW8bit", any_fields(o)) {
  add_all(std::move(params));
}

void AdamW8bit::init(const Options& o, size_t i) {
  const Param& p = params_of(i);
  if (static_cast<double>(p.numel()) < o["min_8bit_size"]) {
    add_state(i, "exp_avg");
    add_state(i, "exp_avg_sq");
    return;
  }
  const int64_t blocks = blocks_of(p.numel());
  const auto add = [&](const char* codes, const char* absmax, bool is_signed) {
    const auto zero = codes_of(is_signed).zero;
    add_state(i, codes, full({blocks * kBlock}, zero, DType::u8).to(p.device()));
    add_state(i, absmax, zeros({blocks}, DType::f32).to(p.device()));
  };
  add("exp_avg", "exp_avg_absmax", true);
  add("exp_avg_sq", "exp_avg_sq_absmax", false);
}

void AdamW8bit::update(Update& u) {
  const Number lr = u.number("lr"), decay = u.number("weight_decay"), eps = u.number("eps"),
               beta1 = u.number("beta1"), beta2 = u.number("beta2"),
               bias1 = u.bias_correction("beta1"), bias2 = u.bias_correction("beta2");
  if (!u.has_state("exp_avg_absmax")) {
    u.run(op::adamw_update, {"exp_avg", "exp_avg_sq"},
          {lr, beta1, beta2, eps, decay, bias1, bias2});
    return;
  }
  const Tensor g = u.grad.to(DType::f32);
  const auto old = [&](const char* codes, const char* absmax, bool is_signed) {
    return decoded(u.state(codes), u.state(absmax), is_signed, g.shape());
  };
  const auto store = [&](const char* codes, const char* absmax, const Tensor& v, bool is_signed) {
    const Encoded e = encoded(v, is_signed);
    u.set_state(codes, e.codes);
    u.set_state(absmax, e.absmax);
  };
  const Tensor m = lerp(old("exp_avg", "exp_avg_absmax", true), g, (1.0 - beta1).operand()),
               v = lerp(old("exp_avg_sq", "exp_avg_sq_absmax", false), square(g),
                        (1.0 - beta2).operand());
  store("exp_avg", "exp_avg_absmax", m, true);
  store("exp_avg_sq", "exp_avg_sq_absmax", v, false);
  const Tensor size = tandem::sqrt(v) / sqrt(bias2).operand() + eps.operand();
  u.run(op::decoupled_update, {}, {lr, decay, lr / bias1}, (m / size).to(u.grad.dtype()));
}

}  // namespace tandem::optim
