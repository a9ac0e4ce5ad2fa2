// SPDX-License-Identifier: Apache-2.0
// Your own ops, three ways: a pointwise row (derivative, vmap and all dtypes follow from its
// expression), a row composed of other ops with its own kernel, and a function with its own
// derivative.
#include <tandem/graph/apply.h>
#include <tandem/graph/expression/scalar_expr.h>
#include <tandem/tandem.h>

#include <cmath>

using namespace tandem;

namespace {

// 1. One expression: x / (1 + |x|)^2.
void bump_expr(const E* in, E* out) {
  const E& x = in[0];
  out[0] = x / square(1.0 + abs(x));
}
constinit const OpDef bump_row =
    make_row("bump", Family::pointwise, Types::floating, {"x"}, nullptr)
        .expr(bump_expr)
        .doc("x / (1 + |x|)^2.");
Tensor bump(Tensor x, SourceLocation loc = SourceLocation::here()) {
  return call(bump_row, nullptr, loc, std::move(x));
}

// 2. Composed of other ops, so it can be differentiated; on the CPU a kernel runs it as a whole.
void row_norm_infer(InferCall& c) {
  TD_CHECK(c.in[0].rank() == 2, Shape, "x expects 2 dimensions, got {}", c.in[0].shape.to_string());
  c.out[0] = Spec(c.in[0].dtype, {c.in[0].shape[0]}, c.in[0].device);
}
void row_norm_body(BodyCall& c) { c.out[0] = sqrt(sum(square(c.in[0]), {1})); }
constinit const OpDef row_norm_row = composite("row_norm", {"x"}, nullptr, row_norm_body)
                                         .infer(row_norm_infer)
                                         .doc("Euclidean length of each row of x [n, m]: [n].");
Tensor row_norm(Tensor x, SourceLocation loc = SourceLocation::here()) {
  return call(row_norm_row, nullptr, loc, std::move(x));
}
int g_kernel_runs = 0;
bool row_norm_supports(const KernelCall& c) {
  return c.in[0].dtype == DType::f32 && c.in[0].contiguous;
}
void row_norm_run(const KernelCall& c) {
  ++g_kernel_runs;
  int64_t n = c.in[0].shape[0], m = c.in[0].shape[1];
  const float* x = c.in[0].as<const float>();
  for (int64_t i = 0; i < n; ++i) {
    double s = 0;
    for (int64_t k = 0; k < m; ++k) s += static_cast<double>(x[i * m + k]) * x[i * m + k];
    c.out[0].as<float>()[i] = static_cast<float>(std::sqrt(s));
  }
}

bool near(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  return (a - b).abs().amax().to(float64).item<double>() < tolerance;
}

int failures = 0;
void check(const char* what, bool good) {
  print("{:<60} {}\n", what, good ? "ok" : "WRONG");
  failures += !good;
}

}  // namespace

int main() {
  init();
  register_op(bump_row);
  register_op(row_norm_row);
  register_kernel(DeviceKind::cpu, row_norm_row,
                  {.supports = row_norm_supports, .run = row_norm_run});

  Tensor x = tensor({{3.0f, 4.0f}, {-1.0f, 0.5f}});
  check("the expression runs", near(bump(x), x / (1.0 + x.abs()).square()));
  auto f = [](std::span<const Tensor> v) { return std::vector<Tensor>{bump(v[0])}; };
  check("its derivative, to order 2", gradcheck(f, {x.to(float64)}, {.order = 2}));
  check("vmap", near(vmap([](Tensor r) { return bump(r); })(x), bump(x)));

  check("the kernel runs", near(row_norm(x).select(0, 0), full({}, 5.0)) && g_kernel_runs == 1);
  check("other dtypes take the body", near(row_norm(x.to(float64)), row_norm(x).to(float64)));
  Tensor w = x.detach().requires_grad_();
  row_norm(w).sum().backward();
  check("its derivative comes from the body", near(w.grad(), x / row_norm(x).unsqueeze(1)));

  auto clipped =
      custom_vjp([](std::span<const Tensor> v) { return std::vector<Tensor>{v[0] * 1.0}; },
                 [](std::span<const Tensor>, std::span<const Tensor>, std::span<const Tensor> g) {
                   return std::vector<Tensor>{g[0].clamp(-0.1, 0.1)};
                 });
  Tensor v = x.detach().requires_grad_();
  (clipped(v) * 7.0).sum().backward();
  check("your own derivative", near(v.grad(), full({2, 2}, 0.1)));
  return failures;
}
