// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/random_program_helper.h"

namespace tandem::test {

RandomProgram::RandomProgram(uint64_t seed) : seed_(seed) {}

// ---- draws

DType RandomProgram::draw_type() {
  static constexpr DType kTypes[] = {DType::f32, DType::f32, DType::f64, DType::bf16};
  return kTypes[below(std::size(kTypes))];
}

int64_t RandomProgram::draw_size() {
  static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 17};
  if (one_in(40)) return 0;
  if (one_in(12)) return 60 + below(90);
  return kSizes[below(std::size(kSizes))];
}

Shape RandomProgram::draw_shape(int most_dims) {
  Shape s;
  int64_t n = 1;
  for (int64_t d = below(most_dims + 1); d > 0; --d) {
    const int64_t size = draw_size();
    if (n * size > 6000) continue;
    n *= size;
    s.push_back(size);
  }
  return s;
}

Tensor RandomProgram::pick_full(int rank) {
  for (int k = 0; k < 8; ++k)
    if (const Tensor& t = pick(); t.dim() >= rank && t.numel() > 0) return t;
  Shape s;
  for (int d = 0; d < rank; ++d) s.push_back(1 + below(5));
  return pick_like(s, dtype_);
}

Tensor RandomProgram::pick_like(const Shape& shape, DType dtype) {
  const Tensor& from = pick();
  const int64_t want = shape.numel().value();
  Tensor t = from.to(dtype);
  if (t.shape() == shape) return t;
  t = t.flatten();
  if (t.numel() == 0) return full(shape, 0.5, dtype);
  if (t.numel() < want) t = repeat(t, {(want + t.numel() - 1) / t.numel()});
  return t.slice(0, 0, want).reshape(shape);
}

// ---- views and copies

Tensor RandomProgram::view() {
  const Tensor x = pick();
  const int64_t d = draw_dim(x), n = x.dim() ? x.size(d) : 1;
  switch (below(x.dim() ? 9 : 2)) {
    case 0:
      return say("unsqueeze"), unsqueeze(x, below(x.dim() + 1));
    case 1:
      return say("flatten"), x.flatten();
    case 2:
      return say("transpose"), transpose(x, d, draw_dim(x));
    case 3:
      return say("slice"), x.slice(d, below(n + 1), below(n + 1) + 1, 1 + below(2));
    case 4:
      return n ? (say("select"), select(x, d, below(n))) : x;
    case 5: {
      IntList order;
      for (int k = 0; k < x.dim(); ++k) order.insert(static_cast<int>(below(k + 1)), k);
      return say("permute"), permute(x, order);
    }
    case 6:
      return say("movedim"), movedim(x, d, draw_dim(x));
    case 7: {
      Shape wide = x.shape();
      wide.insert(0, 1 + below(3));
      return say("expand"), expand(x, wide);
    }
    default:
      return say("reshape"), reshape(x.transpose(0, d), Shape(n, -1 + (n == 0) * 1));
  }
}

Tensor RandomProgram::rearranged() {
  const Tensor x = pick();
  const int64_t d = draw_dim(x);
  switch (below(x.dim() ? 6 : 2)) {
    case 0:
      return say("contiguous"), x.contiguous();
    case 1:
      return say("clone"), clone(x);
    case 2:
      return say("flip"), flip(x, {d});
    case 3:
      return say("roll"), roll(x, {1 + below(3)}, {d});
    case 4:
      return say("t.contiguous.t"),
             transpose(contiguous(transpose(x, 0, x.dim() - 1)), 0, x.dim() - 1);
    default:
      return say("pad"), pad(x, {below(3), below(2)});
  }
}

Tensor RandomProgram::joined() {
  const Tensor x = pick();
  if (x.dim() == 0) return say("stack 0-d"), stack({x, pick_like({}, x.dtype())});
  const int64_t d = draw_dim(x);
  switch (below(4)) {
    case 0:
      return say("cat"), cat({x, pick_like(x.shape(), x.dtype()), x}, d);
    case 1:
      return say("stack"), stack({x, pick_like(x.shape(), x.dtype())}, below(x.dim() + 1));
    case 2: {  // parts that are read apart
      const std::vector<Tensor> p = split(x, std::max<int64_t>(1, (x.size(d) + 1) / 2), d);
      Tensor y = sin(p.front()).sum();
      for (const Tensor& part : p) y = y + (part * part).sum();
      return say("split"), y;
    }
    default: {
      std::vector<Tensor> p = split(x, std::max<int64_t>(1, x.size(d) / 3), d);
      std::swap(p.front(), p.back());
      return say("split, cat"), cat(p, d);
    }
  }
}

// ---- elements

Tensor RandomProgram::unary() {
  const Tensor x = pick();
  switch (below(15)) {
    case 0:
      return say("sin"), sin(x);
    case 1:
      return say("exp"), exp(bounded(x));
    case 2:
      return say("tanh"), tanh(x);
    case 3:
      return say("relu"), relu(x);
    case 4:
      return say("abs"), abs(x);
    case 5:
      return say("sqrt"), sqrt(abs(x) + 0.5);
    case 6:
      return say("neg"), -x;
    case 7:
      return say("gelu"), gelu(x);
    case 8:
      return say("clamp"), clamp(x, -0.5, 0.5);
    case 9:
      return say("square"), bounded(square(x));
    case 10:
      return say("where"), where(x > 0.1, x, x * 0.5);
    case 11:
      return say("silu"), silu(x);
    case 12:
      return say("number"), x * 0.7 - 1.25;
    case 13: {  // exporters write numbers as tensors
      const auto one = [&](double v) {
        return constant(full(one_in(2) ? Shape() : Shape(1), v, x.dtype()));
      };
      return say("constants"), minimum(x / one(0.3), one(1.5)) - where(x > one(-0.0), x, one(-0.0));
    }
    default:
      return say("log"), log(abs(x) + 0.3);
  }
}

Tensor RandomProgram::binary() {
  const Tensor x = pick(),
               y = one_in(3) ? x : pick_like(x.shape(), one_in(6) ? draw_type() : x.dtype());
  switch (below(7)) {
    case 0:
      return say("add"), x + y;
    case 1:
      return say("sub"), x - y;
    case 2:
      return say("mul"), x * y;
    case 3:
      return say("div"), x / (abs(y) + 0.5);
    case 4:
      return say("maximum"), maximum(x, y);
    case 5:
      return say("addcmul"), addcmul(x, y, x, 0.3);
    default:
      return say("hypot"), x * sin(y) + y * cos(x);
  }
}

Tensor RandomProgram::broadcast() {
  const Tensor x = pick();
  Shape s = x.shape();
  for (int d = 0; d < s.rank(); ++d)
    if (one_in(2)) s[d] = 1;
  while (s.rank() > 0 && one_in(4)) s.erase(0);
  const Tensor y = pick_like(s, x.dtype());
  say("broadcast");
  return one_in(2) ? x * y + y : where(x > y, y, x);
}

// ---- reductions and scans

Tensor RandomProgram::reduction() {
  const Tensor x = pick();
  IntList dims;
  for (int d = 0; d < x.dim(); ++d)
    if (one_in(2)) dims.push_back(d);
  const bool keep = one_in(2);
  switch (below(x.numel() ? 9 : 3)) {
    case 0:
      return say("sum"), bounded(sum(x, dims, keep));
    case 1:
      return say("mean"), mean(x, dims, keep);
    case 2:
      return say("prod"), bounded(prod(bounded(x) + 1.0, dims, keep));
    case 3:
      return say("amax"), amax(x, dims, keep);
    case 4:
      return say("var"), bounded(var(x, dims, 0, keep));
    case 5:
      return say("logsumexp"), logsumexp(x, dims, keep);
    case 6:
      return say("norm"), norm(x, 2, dims, keep);
    case 7:
      return say("std"), tandem::std(x, dims, 0, keep);
    default:
      return say("max"), x.dim() ? max(x, draw_dim(x)).values : max(x);
  }
}

Tensor RandomProgram::running() {
  const Tensor x = pick_full(1);
  const int64_t d = draw_dim(x);
  switch (below(5)) {
    case 0:
      return say("cumsum"), bounded(cumsum(x, d));
    case 1:
      return say("cumprod"), cumprod(bounded(x), d);
    case 2:
      return say("logcumsumexp"), logcumsumexp(x, d);
    case 3:
      return say("cummax"), cummax(x, d).values;
    default:
      return say("diff"), diff(x, 1, d);
  }
}

Tensor RandomProgram::row_wise() {
  const Tensor x = pick_full(1);
  const int64_t d = draw_dim(x);
  switch (below(6)) {
    case 0:
      return say("softmax"), softmax(x, d);
    case 1:
      return say("log_softmax"), log_softmax(x, d);
    case 2:
      return say("layer_norm"), layer_norm(x, {x.shape().back()});
    case 3: {
      const Shape s{x.shape().back()};
      return say("layer_norm(w, b)"),
             layer_norm(x, s, pick_like(s, x.dtype()), pick_like(s, x.dtype()));
    }
    case 4:
      return say("rms_norm"), rms_norm(x, {x.shape().back()});
    default:
      return say("normalize"), normalize(x, 2, d);
  }
}

// ---- indices

Tensor RandomProgram::indexed() {
  const Tensor x = pick_full(1);
  const int64_t d = draw_dim(x), n = x.size(d);
  const auto numbers = [&](int64_t count) {
    std::vector<int64_t> v;
    for (int64_t i = 0; i < count; ++i) v.push_back(below(n));
    return tensor(v);
  };
  switch (below(6)) {
    case 0:
      return say("index_select"), index_select(x, d, numbers(1 + below(6)));
    case 1:
      return say("gather"), gather(x, d, argsort(x, d));
    case 2:
      return say("sort"), sort(x, d, one_in(2)).values;
    case 3:
      return say("topk"), topk(x, 1 + below(n), d).values;
    case 4:
      return say("masked_fill"), masked_fill(x, x > 0.2, 0.25);
    default:
      return say("take"), index_select(x.flatten(), 0, argsort(x.flatten()));
  }
}

Tensor RandomProgram::put_back() {
  const Tensor x = pick_full(1);
  const int64_t d = draw_dim(x), n = x.size(d);
  std::vector<int64_t> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(below(n));
  const Tensor at = tensor(v), source = pick_like(x.shape(), x.dtype());
  switch (below(5)) {
    case 0:
      return say("index_add"), index_add(x, d, at, source);
    case 1: {
      Shape column(1);
      for (int k = 1; k < x.dim(); ++k) column.push_back(1);
      return say("scatter_add"),
             scatter_add(x, 0, expand(reshape(tensor(below(x.size(0))), column), source.shape()),
                         source);
    }
    case 2:
      return say("index_put"), index_put(x, {below(x.size(0))}, 0.5);
    case 3:
      return say("scatter_reduce prod"),
             scatter_reduce(x, d, argsort(x, d), bounded(source) + 1.5, "prod");
    default:
      return say("slice, put"), index_put(x, {0}, select(source, 0, 0));
  }
}

// ---- matmuls and windows

Tensor RandomProgram::product() {
  const Tensor x = pick_full(1);
  const int64_t k = x.size(-1), n = 1 + below(9);
  switch (below(4)) {
    case 0:
      return say("matmul"), bounded(matmul(x, pick_like({k, n}, x.dtype())));
    case 1:
      return say("matmul t"), bounded(matmul(x, transpose(pick_like({n, k}, x.dtype()), 0, 1)));
    case 2:
      return say("linear"),
             bounded(linear(x, pick_like({n, k}, x.dtype()), pick_like({n}, x.dtype())));
    default: {
      const Tensor y = x.dim() < 2 ? unsqueeze(x, 0) : x;
      return say("x t.x"), bounded(matmul(transpose(y, -1, -2), y));
    }
  }
}

Tensor RandomProgram::window() {
  const int64_t c = 1 + below(4), h = 3 + below(5);
  const Tensor x = pick_like({1 + below(2), c, h, h + 1}, one_in(3) ? DType::f64 : DType::f32);
  switch (below(4)) {
    case 0:
      return say("conv2d"), bounded(conv2d(x, pick_like({1 + below(3), c, 3, 3}, x.dtype())));
    case 1:
      return say("max_pool2d"), max_pool2d(x, {2});
    case 2:
      return say("avg_pool2d"), avg_pool2d(x, {2});
    default:
      return say("conv2d, relu"),
             relu(conv2d(x, pick_like({2, c, 2, 2}, x.dtype()), pick_like({2}, x.dtype())))
                 .sum({0, 2, 3});
  }
}

// ---- no gradient, other dtypes, random numbers

Tensor RandomProgram::without_gradient() {
  const Tensor x = pick();
  switch (below(4)) {
    case 0:
      return say("detach"), x * sin(pick_like(x.shape(), x.dtype()).detach());
    case 1: {
      Tensor y;
      {
        NoGradGuard no_grad;
        y = cos(exp(bounded(pick_like(x.shape(), x.dtype()))));
      }
      return say("no_grad"), x + y * x;
    }
    case 2:
      return say("sign"), x * sign(pick_like(x.shape(), x.dtype()));
    default:
      return say("by integers"), x + (x * 3).to(DType::i32).to(x.dtype());
  }
}

Tensor RandomProgram::cast() {
  const Tensor x = pick();
  const DType t = one_in(5) ? DType::f16 : draw_type();
  return say("to " + std::string(to_string(t))), t == DType::f16 ? x.to(t).to(dtype_) : x.to(t);
}

Tensor RandomProgram::noise() {
  const Tensor x = pick();
  return one_in(2) ? (say("dropout"), dropout(x, 0.3, true))
                   : (say("rand"), x * rand(x.shape(), x.dtype()));
}

// ---- loops and conditions

Tensor RandomProgram::scanned() {
  const Tensor xs = pick_full(1);
  const Tensor start = pick_like(Shape(select(xs, 0, 0).shape()), xs.dtype());
  const Tensor outer = pick_like(start.shape(), xs.dtype());
  const int64_t kind = below(4);
  const bool reverse = one_in(3);
  const auto step = [&](const Tensor& c, const Tensor& x) {
    Tensor next = kind == 0   ? tanh(c * outer + x)
                  : kind == 1 ? bounded(c + x * outer + outer)
                  : kind == 2 ? sin(c) * x + cos(outer) * c
                              : c * 0.5 + relu(x) * c;
    Tensor y = kind == 3 ? next * x + outer : next;
    return std::pair(next, y);
  };
  const auto [last, ys] = scan(step, start, xs, {.reverse = reverse});
  say("scan");
  if (one_in(2)) pool_.push_back(last);
  return one_in(2) ? ys : last * outer + sum(ys, {0});
}

Tensor RandomProgram::branched() {
  const Tensor x = pick_full(0), outer = pick_like(x.shape(), x.dtype());
  const bool both = one_in(2);
  say("cond");
  return cond(
      x.sum() > 0.3, [&](const Tensor& t) { return t * outer + sin(t) * outer; },
      [&](const Tensor& t) { return both ? t * cos(outer) + t : t * t * t; }, x);
}

Tensor RandomProgram::looped() {
  const Tensor x = pick_full(0), outer = pick_like(x.shape(), x.dtype());
  say("while_loop");
  return while_loop([&](const Tensor& t) { return abs(t).sum() > 0.4; },
                    [&](const Tensor& t) { return t * 0.5 * cos(outer) + t * 0.1; }, x,
                    {.max_steps = 1 + below(6)});
}

Tensor RandomProgram::mapped() {
  const Tensor x = pick_full(1), outer = pick_like(Shape(select(x, 0, 0).shape()), x.dtype());
  say("vmap");
  return vmap([&](const Tensor& t) { return t * outer + tanh(t).sum() * outer; })(x);
}

// ---- whole programs

Tensor RandomProgram::any_step() {
  static constexpr std::pair<int, Step> kSteps[] = {
      {6, &RandomProgram::view},      {3, &RandomProgram::rearranged},
      {2, &RandomProgram::joined},    {6, &RandomProgram::unary},
      {6, &RandomProgram::binary},    {3, &RandomProgram::broadcast},
      {5, &RandomProgram::reduction}, {2, &RandomProgram::running},
      {2, &RandomProgram::row_wise},  {2, &RandomProgram::indexed},
      {2, &RandomProgram::put_back},  {3, &RandomProgram::product},
      {1, &RandomProgram::window},    {3, &RandomProgram::without_gradient},
      {2, &RandomProgram::cast},      {1, &RandomProgram::noise},
      {2, &RandomProgram::scanned},   {2, &RandomProgram::branched},
      {1, &RandomProgram::looped},    {1, &RandomProgram::mapped},
  };
  int64_t total = 0;
  for (const auto& [weight, step] : kSteps) total += weight;
  int64_t at = below(total);
  for (const auto& [weight, step] : kSteps)
    if ((at -= weight) < 0) return (this->*step)();
  return pick();
}

std::vector<Tensor> RandomProgram::inputs() const {
  RandomProgram draws(seed_);
  draws.rng_.seed(seed_ * 2 + 1);
  manual_seed(seed_);
  std::vector<Tensor> x;
  const DType most = draws.draw_type();
  for (int64_t k = 2 + draws.below(2); k > 0; --k)
    x.push_back(randn(draws.draw_shape(3), draws.one_in(5) ? draws.draw_type() : most));
  return x;
}

std::vector<Tensor> RandomProgram::run(std::span<const Tensor> x) {
  rng_.seed(seed_);
  text.clear();
  pool_.assign(x.begin(), x.end());
  dtype_ = x[0].dtype();
  for (int64_t steps = 3 + below(10); steps > 0; --steps) {
    Tensor y = any_step();
    if (y.numel() > 8000 || y.dim() > 5) y = mean(y, {0});
    pool_.push_back(std::move(y));
  }
  std::vector<Tensor> out(pool_.end() - 2, pool_.end());
  for (int k = 0; k < 2; ++k) out.push_back(pick());
  return out;
}

std::vector<Tensor> RandomProgram::gradients(std::span<const Tensor> x) {
  const auto total = [&](std::span<const Tensor> v) {
    Tensor sum;
    for (const Tensor& y : run(v)) {
      const Tensor part = (y.to(DType::f32) * cos(y.detach().to(DType::f32))).sum();
      sum = sum.defined() ? sum + part : part;
    }
    return Tensors{sum};
  };
  std::vector<int> all;
  for (size_t i = 0; i < x.size(); ++i) all.push_back(static_cast<int>(i));
  detail::ValueAndGrads r = detail::value_and_grads(total, x, all, SourceLocation::here());
  r.grads.push_back(r.value[0]);
  return r.grads;
}

}  // namespace tandem::test
