// SPDX-License-Identifier: Apache-2.0
// Fused loops interpreted and compiled, side by side: gelu forward and backward, AdamW, bias and
// relu, layer norm, softmax, f32, by size; for comparison, the time of copying the same bytes.
// Usage: fused_bench [threads]
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/floats.h"
#include "bench/seconds.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/jit.h"
#include "tandem/codegen/pointwise.h"
#include "tandem/codegen/row_programs.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"

using namespace tandem;

namespace {

using bench::Floats;

// `bytes` that the loop must move, `n` elements.
void compare(const char* name, int64_t n, double bytes, const std::function<void()>& f) {
  codegen::use_jit(false);
  f();
  const double interpreted = bench::seconds(f);
  codegen::use_jit(true);
  {
    const codegen::JitScope scope;
    f();
    wait_for_jit();
    f();  // by both
  }
  const double compiled = bench::seconds(f);
  std::vector<char> from(static_cast<size_t>(bytes / 2) + 64, 1), to(from.size());
  const double copy = bench::seconds([&] {
    parallel_for(0, static_cast<int64_t>(from.size()), 65536, [&](int64_t a, int64_t b) {
      std::memcpy(to.data() + a, from.data() + a, static_cast<size_t>(b - a));
    });
  });
  const double k = static_cast<double>(n) * 1e-6;
  fmt::print("{:<16}{:>9}{:>12.2f}{:>12.2f}{:>8.2f}{:>10.0f}{:>10.0f}{:>9.1f}{:>9.1f}{:>9.1f}\n",
             name, n, interpreted * 1e6, compiled * 1e6, interpreted / compiled, k / interpreted,
             k / compiled, bytes / interpreted * 1e-9, bytes / compiled * 1e-9,
             bytes / copy * 1e-9);
  std::fflush(stdout);
}

void gelu_both(int64_t n) {
  static const ScalarProgram* p = [] {
    ScalarGraph g(2);
    const E x = g.input(0), dy = g.input(1);
    const E cdf = 0.5 * (1 + erf(x * 0.7071067811865476));
    g.add_output(x * cdf);
    g.add_output(dy * (cdf + x * exp(square(x) * -0.5) * 0.3989422804014327));
    const DType f32[] = {DType::f32, DType::f32};
    return new ScalarProgram(lower(g, f32, DType::f32, f32));
  }();
  Floats x({n}), dy({n}), y({n}), gx({n});
  const Array in[] = {x.array, dy.array};
  Array out[] = {y.array, gx.array};
  compare("gelu, gradient", n, static_cast<double>(n) * 16,
          [&] { codegen::run_program(*p, in, 2, out, 2, nullptr, true); });
}

void bias_relu(int64_t n) {
  static const ScalarProgram* p = [] {
    ScalarGraph g(2);
    const E x = g.input(0) + g.input(1);
    g.add_output(where(x < 0, 0, x));
    const DType f32[] = {DType::f32, DType::f32};
    return new ScalarProgram(lower(g, f32, DType::f32, std::span(f32, 1)));
  }();
  Floats x({n / 1024, 1024}), b({1024}), y({n / 1024, 1024});
  const Array in[] = {x.array, b.array};
  compare("bias, relu", n, static_cast<double>(n) * 8,
          [&] { codegen::run_program(*p, in, 2, &y.array, 1, nullptr, true); });
}

void adamw(int64_t n) {
  Floats p({n}), g({n}), m({n}), v({n});
  for (int64_t i = 0; i < n; ++i) {  // no zeros: moments would fade to subnormals
    v.array.as<float>()[i] *= v.array.as<float>()[i];
    g.array.as<float>()[i] = g.array.as<float>()[i] < 0 ? -0.3f : 0.3f;
  }
  const bench::AdamW call({p.array, g.array, m.array, v.array});
  compare("adamw", n, static_cast<double>(n) * 28, [&] { codegen::run_pointwise(call.call()); });
}

void softmax(int64_t n, int64_t length) {
  Floats x({n / length, length}), y({n / length, length}), g({n / length, length});
  const std::string name = fmt::format("softmax {}", length);
  compare(name.c_str(), n, static_cast<double>(n) * 8,
          [&] { codegen::run_softmax(x.array, y.array, 1, false); });
}

void layer_norm(int64_t n, int64_t length) {
  Floats x({n / length, length}), y({n / length, length}), gy({n / length, length}),
      gx({n / length, length}), w({length}), b({length}), gw({length}), gb({length}),
      mean({n / length, 1}), rstd({n / length, 1});
  codegen::NormArrays a;
  a.x = &x.array;
  a.w = &w.array;
  a.b = &b.array;
  a.y = &y.array;
  a.mean = &mean.array;
  a.rstd = &rstd.array;
  a.eps = 1e-5;
  compare(fmt::format("norm {}", length).c_str(), n, static_cast<double>(n) * 8,
          [&] { codegen::run_norm(a); });
  codegen::NormArrays d = a;
  d.gy = &gy.array;
  d.gx = &gx.array;
  d.gw = &gw.array;
  d.gb = &gb.array;
  compare(fmt::format("norm back {}", length).c_str(), n, static_cast<double>(n) * 12,
          [&] { codegen::run_norm_backward(d); });
}

}  // namespace

int main(int argc, char** argv) {
  init();
  set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  fmt::print("{:<16}{:>9}{:>12}{:>12}{:>8}{:>10}{:>10}{:>9}{:>9}{:>9}\n", "case", "floats",
             "interp. us", "compiled us", "ratio", "floats/us", "floats/us", "GB/s", "GB/s",
             "copy GB/s");
  for (int64_t n : {int64_t{4096}, int64_t{65536}, int64_t{1} << 20, int64_t{1} << 23}) {
    gelu_both(n);
    bias_relu(n);
    adamw(n);
    for (int64_t length : {64, 256, 1024}) softmax(n, length);
    for (int64_t length : {128, 768}) layer_norm(n / length * length, length);
  }
  const JitStats s = jit_stats();
  fmt::print("{} loops in use, {} dropped\n", s.accepted, s.differed);
  return s.differed == 0 ? 0 : 1;
}
