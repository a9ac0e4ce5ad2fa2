// SPDX-License-Identifier: Apache-2.0
// Speed of the tile kernels alone, without the dispatcher: GB/s of add, relu, gelu, sum, column sum
// and softmax, f32, by size and threads, for every kernel table that the processor runs. Usage:
// tile_bench [name ...]
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/floats.h"
#include "bench/seconds.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/pointwise.h"
#include "tandem/codegen/reduce.h"
#include "tandem/codegen/row_programs.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/graph/reduce_attrs.h"
#include "tandem/ops/ops.h"

using namespace tandem;

namespace {

using bench::Floats;

template <class F>
void report(const char* name, int64_t n, int threads, double bytes, F&& f) {
  set_num_threads(threads);
  const double s = bench::seconds(f);
  set_num_threads(0);
  fmt::print("{:<14}{:>10}{:>9}{:>12.2f}{:>10.1f}\n", name, n, threads, s * 1e6, bytes / s * 1e-9);
  std::fflush(stdout);
}

struct Case {
  const char* name;
  const OpDef& op;
  int n_in;
  std::vector<int64_t> (*in_shape)(int64_t n, int input);
  std::vector<int64_t> (*out_shape)(int64_t n);
  std::vector<Scalar> numbers;
  int64_t reduce_dim;
  void (*run)(const KernelCall&);
};

void softmax_run(const KernelCall& c) { codegen::run_softmax(c.in[0], c.out[0], 1, false); }

std::vector<int64_t> flat(int64_t n, int) { return {n}; }
std::vector<int64_t> flat_out(int64_t n) { return {n}; }
std::vector<int64_t> square(int64_t n, int) { return {n / 256, 256}; }
std::vector<int64_t> square_out(int64_t n) { return {n / 256, 256}; }
std::vector<int64_t> row_second(int64_t n, int k) {
  return k ? std::vector<int64_t>{256} : std::vector<int64_t>{n / 256, 256};
}
std::vector<int64_t> column_second(int64_t n, int k) {
  return k ? std::vector<int64_t>{n / 256, 1} : std::vector<int64_t>{n / 256, 256};
}
std::vector<int64_t> one_out(int64_t) { return {}; }
std::vector<int64_t> row_out(int64_t) { return {256}; }
std::vector<int64_t> column_out(int64_t n) { return {n / 256}; }

void measure(const Case& c, int64_t n, int threads) {
  std::vector<Floats> in;
  for (int k = 0; k < c.n_in; ++k) in.emplace_back(c.in_shape(n, k));
  Floats out(c.out_shape(n));
  std::vector<Array> x;
  double bytes = 0;
  for (Floats& f : in) {
    x.push_back(f.array);
    bytes += static_cast<double>(x.back().numel) * 4;
  }
  for (const Scalar& s : c.numbers) {
    x.emplace_back();
    x.back().is_scalar = true;
    x.back().scalar = s;
  }
  Array y = out.array;
  bytes += static_cast<double>(y.numel) * 4;
  ReduceAttrs reduce;
  if (c.reduce_dim >= 0) reduce.dims = {c.reduce_dim};
  KernelCall call{c.op};
  call.attrs = &reduce;
  call.in = x.data();
  call.n_in = static_cast<int>(x.size());
  call.out = &y;
  call.n_out = 1;
  report(c.name, n, threads, bytes, [&] { c.run(call); });
}

// AdamW in place: p, g, m, v and seven numbers to p, m, v.
void measure_adamw(int64_t n, int threads) {
  Floats p({n}), g({n}), m({n}), v({n});
  for (int64_t i = 0; i < n; ++i) v.array.as<float>()[i] *= v.array.as<float>()[i];
  const bench::AdamW adamw({p.array, g.array, m.array, v.array});
  report("adamw", n, threads, static_cast<double>(n) * 28,
         [&] { codegen::run_pointwise(adamw.call()); });
}

}  // namespace

int main(int argc, char** argv) {
  register_all_ops();
  const Case cases[] = {
      {"add", op::add, 2, flat, flat_out, {}, -1, codegen::run_pointwise},
      {"add_row", op::add, 2, row_second, square_out, {}, -1, codegen::run_pointwise},
      {"add_column", op::add, 2, column_second, square_out, {}, -1, codegen::run_pointwise},
      {"mul_number", op::mul, 1, flat, flat_out, {Scalar(0.5)}, -1, codegen::run_pointwise},
      {"relu", op::relu, 1, flat, flat_out, {}, -1, codegen::run_pointwise},
      {"exp", op::exp, 1, flat, flat_out, {}, -1, codegen::run_pointwise},
      {"tanh", op::tanh, 1, flat, flat_out, {}, -1, codegen::run_pointwise},
      {"gelu", op::gelu, 1, flat, flat_out, {}, -1, codegen::run_pointwise},
      {"sum", op::sum, 1, flat, one_out, {}, -1, codegen::run_reduce},
      {"sum_rows", op::sum, 1, square, column_out, {}, 1, codegen::run_reduce},
      {"sum_columns", op::sum, 1, square, row_out, {}, 0, codegen::run_reduce},
      {"amax_rows", op::amax, 1, square, column_out, {}, 1, codegen::run_reduce},
      {"logsumexp", op::logsumexp, 1, square, column_out, {}, 1, codegen::run_reduce},
      {"softmax", op::softmax, 1, square, square_out, {}, -1, softmax_run},
  };
  const codegen::TileTable* tables[3];
  const int n_tables = codegen::all_tiles(tables);
  for (int t = n_tables - 1; t >= 0; --t) {
    codegen::use_tiles(tables[t]);
    fmt::print("\n{} kernels\n{:<14}{:>10}{:>9}{:>12}{:>10}\n", tables[t]->name, "case", "floats",
               "threads", "us", "GB/s");
    const auto wanted = [&](const char* name) {
      for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], name) == 0) return true;
      }
      return argc < 2;
    };
    const auto by_size = [&](auto&& run) {
      for (int64_t n : {int64_t{4096}, int64_t{65536}, int64_t{1} << 20, int64_t{1} << 24}) {
        for (int threads : {1, 2}) {
          if (t == n_tables - 1 || (threads == 1 && n == 65536)) run(n, threads);
        }
      }
    };
    for (const Case& c : cases) {
      if (wanted(c.name)) by_size([&](int64_t n, int threads) { measure(c, n, threads); });
    }
    if (wanted("adamw")) by_size(measure_adamw);
  }
  return 0;
}
