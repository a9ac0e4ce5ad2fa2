// SPDX-License-Identifier: Apache-2.0
// The truth matrix: every row of the op driver's table on a device, beside the CPU. Floating
// results are compared with the CPU's in f64, what promises equal bits and whole numbers with the
// CPU's of the same type. What the device has not written is NaN, and each call is made twice.
#include <fmt/core.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "bench/gpu_bench.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/row_promises.h"
#include "tests/ops/row_cases.h"

namespace tandem::bench {
namespace {

using rows::Row;
using Args = std::vector<rows::Arg>;

enum class Lie { contiguous, strided, odd, empty };
constexpr Lie kLies[] = {Lie::contiguous, Lie::strided, Lie::odd, Lie::empty};
constexpr const char* kLieNames[] = {"contiguous", "strided", "odd", "empty"};

struct TruthCase {
  const Row& row;
  DType dtype;
  Lie lie;
  int64_t size() const { return lie == Lie::empty ? 0 : lie == Lie::odd ? 13 : 16; }
};

std::string name_of(const TruthCase& c) {
  return fmt::format("{}({}) {} {}", c.row.op, c.row.in, to_string(c.dtype),
                     kLieNames[static_cast<int>(c.lie)]);
}

double limit_of(const TruthCase& c, bool tf32) {
  double limit = c.dtype == DType::f32 ? 1e-5 : c.dtype == DType::bf16 ? 1e-2 : 2e-3;
  const Family family = find_op(c.row.op)->family;
  const bool multiplies = family == Family::contraction || family == Family::composite;
  if (tf32 && multiplies && c.dtype == DType::f32) limit = 1e-3;
  // Rows whose f32 is known to be less exact say so in the table.
  constexpr double kUsual = 2e-5;
  return c.row.tolerance > kUsual ? std::max(limit, c.row.tolerance) : limit;
}

/// The same values in new memory of the device, as the case wants them to lie.
Tensor put(const Tensor& t, Lie lie, Device d) {
  if (lie == Lie::strided) return rows::odd_strides(t, 0).to(d);
  if (lie != Lie::odd || t.numel() == 0) return t.to(d);
  // One element into its memory, so that no address is a multiple of 16 bytes.
  const Tensor line = t.flatten();
  return cat({line.slice(0, 0, 1), line}, 0).to(d).slice(0, 1, 1 + t.numel()).view(t.shape());
}

/// NaN in the blocks that the pool gives out next: two of each size.
void poison(Device d, const std::vector<Tensor>& results) {
  gpu::Engine& e = gpu::engine_of(d);
  const gpu::StreamRef stream = e.stream(current_stream(d));
  std::vector<size_t> sizes;
  for (size_t bytes = 512; bytes <= size_t{256} << 10; bytes *= 2) sizes.push_back(bytes);
  for (const Tensor& t : results)
    if (t.defined()) sizes.push_back(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  std::vector<gpu::Address> held;
  for (const size_t bytes : sizes) {
    for (int i = 0; i < 2; ++i) {
      held.push_back(e.pool().allocate(bytes, stream, "poison"));
      if (bytes) e.check(e.context().fill(held.back(), 0xff, bytes, stream));
    }
  }
  for (const gpu::Address at : held) e.pool().release(at);
}

std::vector<Tensor> on_host(const std::vector<Tensor>& all) {
  std::vector<Tensor> here;
  for (const Tensor& t : all) here.push_back(t.defined() ? t.cpu().contiguous() : t);
  return here;
}

std::vector<Tensor> run_there(const TruthCase& c, const Args& args, Device d) {
  std::vector<Tensor> there;
  for (const Tensor& t : rows::tensors_of(args)) there.push_back(put(t, c.lie, d));
  const DeviceGuard guard(d);
  return on_host(rows::call_row(c.row, rows::with_tensors(args, there), c.size(), true));
}

/// ||got - want|| / ||want||; infinite where one is NaN or infinite and the other is not.
double distance(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
      if (std::isfinite(b[i])) norm += b[i] * b[i];
      continue;
    }
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return error == 0 ? 0 : std::sqrt(error) / std::sqrt(std::max(norm, 1e-30));
}

/// The element that is furthest off, for people.
std::string furthest(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  size_t at = 0;
  double most = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double off = std::isfinite(a[i] - b[i]) ? std::abs(a[i] - b[i]) : INFINITY;
    if (off > most) at = i, most = off;
  }
  return most < 0 ? "" : fmt::format("; element {} is {}, not {}", at, a[at], b[at]);
}

struct Truth {
  Device device;
  bool tf32 = false;
  long checked = 0, failed = 0, by_host = 0;
  std::map<DType, std::pair<double, std::string>> worst;  // of those within their limit

  void fail(const TruthCase& c, const std::string& what) {
    fmt::print("FAILED  {}: {}\n", name_of(c), what);
    std::fflush(stdout);
  }
  std::string compare(const TruthCase& c, const Tensor& got, const Tensor& same_type,
                      const Tensor& exact);
  std::string problem(const TruthCase& c);
  void check(const TruthCase& c);
};

// "" where it is true.
std::string Truth::compare(const TruthCase& c, const Tensor& got, const Tensor& same_type,
                           const Tensor& exact) {
  if (got.defined() != same_type.defined()) return "an output is missing";
  if (!got.defined()) return "";
  if (!(got.shape() == same_type.shape()) || got.dtype() != same_type.dtype())
    return fmt::format("is {}, not {}", spec_of(got).to_string(), spec_of(same_type).to_string());
  if (!is_floating(got.dtype()) || rows::has_the_cpus_bits(*find_op(c.row.op)))
    return rows::same_bits_or_nan(got, same_type)
               ? ""
               : "has other bits than the CPU's" + furthest(got, same_type);
  // Where a row rounds between its steps, the CPU has that error, too.
  const double d = distance(got, exact), rounding = distance(same_type, exact);
  const double limit = std::max(limit_of(c, tf32), 2 * rounding);
  if (!(d <= limit))
    return fmt::format("has the relative error {:.2e}, at most {:.1e}{}", d, limit,
                       furthest(got, exact));
  auto& w = worst[c.dtype];
  if (d > w.first) w = {d, name_of(c)};
  return "";
}

std::string Truth::problem(const TruthCase& c) {
  const Args args = rows::make_args(c.row, c.size(), c.dtype);
  const std::vector<Tensor> same_type = on_host(rows::call_row(c.row, args, c.size(), true));
  std::vector<Tensor> exact;
  try {
    exact = rows::call_row(c.row, rows::cast_floating(args, float64), c.size(), true);
  } catch (const Error&) {  // a row of one type
    exact = same_type;
  }
  std::vector<Tensor> first;
  for (const bool again : {false, true}) {
    poison(device, same_type);
    const std::vector<Tensor> got = run_there(c, args, device);
    for (size_t k = 0; k < same_type.size(); ++k) {
      const std::string what = compare(c, got[k], same_type[k], exact[k]);
      if (!what.empty()) return fmt::format("output {} {}", k, what);
      if (again && got[k].defined() && !rows::same_bits_or_nan(got[k], first[k]))
        return fmt::format("output {} differs between two runs", k);
    }
    first = got;
  }
  return "";
}

void Truth::check(const TruthCase& c) {
  const int64_t before = host_runs().calls;
  std::string what;
  try {
    what = problem(c);
  } catch (const std::exception& e) {
    what = std::string("throws: ") + e.what();
  }
  ++checked;
  by_host += host_runs().calls > before;
  if (what.empty()) return;
  ++failed;
  fail(c, what);
}

bool is_wanted(const std::string& op, const std::vector<std::string>& names) {
  if (names.empty()) return true;
  for (const std::string& n : names) {
    const bool all_that_begin = n.ends_with('*');
    if (all_that_begin ? op.starts_with(n.substr(0, n.size() - 1)) : op == n) return true;
  }
  return false;
}

}  // namespace

int gpu_truth(const GpuTruth& what) {
  const NoGradGuard no_grad;
  Truth truth;
  truth.device = device_named(what.device);
  truth.tf32 = what.tf32;
  if (what.tf32) set_float32_matmul_precision(MatmulPrecision::tf32);
  const std::vector<Row> all = rows::all_rows();
  std::vector<std::string> names = rows::split(what.rows, ',');
  for (const Row& row : all) {
    if (row.op == "to_device" || !is_wanted(row.op, names)) continue;
    const Args sample = rows::make_args(row, 16, float32);
    const bool floating = rows::any_floating(sample), tensors = !rows::tensors_of(sample).empty();
    for (const DType dtype : {float32, bfloat16, float16}) {
      if (dtype != float32 && (!floating || (row.off & rows::kNo16))) continue;
      for (const Lie lie : kLies) {
        const bool moved = lie == Lie::strided || lie == Lie::odd;
        if ((moved && !tensors) || (lie == Lie::empty && (row.off & rows::kNo0))) continue;
        truth.check({row, dtype, lie});
      }
    }
  }
  for (const auto& [dtype, w] : truth.worst)
    fmt::print("largest relative error in {}: {:.2e}, {}\n", to_string(dtype), w.first, w.second);
  fmt::print("{} cases on {}: {} failed, the host ran {} of them\n", truth.checked,
             to_string(truth.device), truth.failed, truth.by_host);
  return truth.failed ? 3 : 0;
}

}  // namespace tandem::bench
