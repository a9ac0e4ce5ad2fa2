// SPDX-License-Identifier: Apache-2.0
// Plans run by both executors on the same data, for the tests of compiled loops; a private
// directory; the compilers of this machine.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codegen_helper.h"
#include "tandem/backend/cpu/jit/jit_internal.h"
#include "tandem/codegen/emit_c.h"
#include "tandem/graph/expression/scalar_eval.h"
#include "tests/support/sanitized.h"

namespace tandem {

/// A directory for this test only, removed at the end.
struct TemporaryDirectory {
  std::string path;
  TemporaryDirectory() {
    const char* base = std::getenv("TMPDIR");
    path = std::string(base && *base ? base : "/tmp") + "/tandem-test-XXXXXX";
    if (!mkdtemp(path.data())) path.clear();
  }
  ~TemporaryDirectory() { detail::JitCache::remove_tree(path); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
};

/// Whichever of gcc and clang are available.
inline std::vector<std::string> compilers() {
  std::vector<std::string> found;
  for (const char* name : {"gcc", "clang", "clang-14"}) {
    const std::string path = detail::find_program(name);
    if (!path.empty() && (found.size() < 2 || std::string(name) == "gcc")) found.push_back(path);
  }
  if (found.size() == 2 && found[1].find("clang") == std::string::npos) found.pop_back();
  return found;
}

/// A program with the way its inputs are read, planned.
struct PlanCase {
  std::string what;
  std::vector<DType> in;
  std::vector<codegen::Access> access;
  codegen::TilePlan plan;

  PlanCase(std::string what, const ScalarProgram& p, std::vector<codegen::Access> a,
           const codegen::TileOptions& options = {})
      : what(std::move(what)),
        in(p.in),
        access(std::move(a)),
        plan(codegen::make_tile_plan(p, access.data(), options, codegen::tiles())) {}
};

/// Difficult values: signed zeros, subnormals, infinities, NaN, integer limits.
inline void fill_hard(char* to, DType t, int64_t n, std::mt19937_64& gen) {
  for (int64_t i = 0; i < n; ++i) {
    visit_dtype(t, [&](auto tag) {
      using T = decltype(tag);
      T& x = reinterpret_cast<T*>(to)[i];
      if constexpr (std::is_same_v<T, bool>) {
        x = gen() & 1;
      } else if constexpr (std::is_integral_v<T>) {
        const T odd[] = {0, 1, static_cast<T>(-1), std::numeric_limits<T>::min(),
                         std::numeric_limits<T>::max()};
        const auto small = static_cast<T>(static_cast<int64_t>(gen() % 41) - 20);
        const uint64_t kind = gen() % 8;
        x = kind == 0 ? odd[gen() % 5] : kind == 1 ? static_cast<T>(gen()) : small;
      } else {
        const double inf = std::numeric_limits<double>::infinity();
        const double odd[] = {0.0,    -0.0, inf,    -inf,    std::nan(""), 1e-45, -1e-40, 5e-324,
                              3e-320, 6e-8, 3.4e38, -65504., 1.7e308,      0.5,   1,      -1};
        const uint64_t kind = gen() % 8;
        double v = std::normal_distribution<double>(0, 2)(gen);
        if (kind == 0) v = odd[gen() % std::size(odd)];
        if (kind == 1) v = std::ldexp(v, static_cast<int>(gen() % 200) - 100);
        if constexpr (std::is_same_v<T, double>)
          x = v;
        else
          x = T(static_cast<float>(v));
      }
    });
  }
}

/// Both executors on n elements; reports differences.
inline ::testing::AssertionResult both_equal(const PlanCase& c, codegen::TileCode code, int64_t n,
                                             uint64_t seed) {
  const codegen::TilePlan& p = c.plan;
  std::mt19937_64 gen(seed);
  std::vector<std::vector<char>> memory;
  const auto take = [&](int64_t bytes) {
    memory.emplace_back(static_cast<size_t>(bytes) + 64);
    return static_cast<void*>(memory.back().data());
  };
  std::vector<void*> slots(static_cast<size_t>(p.n_slots()));
  for (int k = 0; k < p.n_in; ++k) {
    const auto at = static_cast<size_t>(k);
    const bool dense = c.access[at] >= codegen::Access::dense;
    const DType t = c.in[at];
    slots[at] = take((dense ? n : 1) * 8);
    if (dense) {
      fill_hard(static_cast<char*>(slots[at]), t, n, gen);
    } else {
      alignas(8) char stored[8];
      fill_hard(stored, t, 1, gen);
      const Value v = load_value(stored, t, 0);
      std::memcpy(slots[at], &v, sizeof v);
    }
  }
  for (int k = 0; k < p.n_tiles; ++k) {
    slots[static_cast<size_t>(p.first_tile() + k)] = take(n * p.tile_width);
  }
  for (int k = 0; k < p.n_values; ++k) slots[static_cast<size_t>(p.first_value() + k)] = take(8);
  for (const auto& v : p.constants) std::memcpy(slots[static_cast<size_t>(v.first)], &v.second, 8);
  std::vector<void*> other;
  for (int k = 0; k < p.n_out; ++k) {
    slots[static_cast<size_t>(p.n_in + k)] = take(n * 8);
    other.push_back(take(n * 8));
  }
  codegen::run_steps(p.value_steps, slots.data(), 1, nullptr);
  codegen::run_steps(p.row_steps, slots.data(), 1, nullptr);
  ErrorWord error;
  codegen::run_steps(p.steps, slots.data(), n, &error);
  std::vector<void*> compiled = slots;
  for (int k = 0; k < p.n_out; ++k) {
    compiled[static_cast<size_t>(p.n_in + k)] = other[static_cast<size_t>(k)];
  }
  const bool divided = code(compiled.data(), n) != 0;
  if (divided != (error.code.load() != 0)) {
    return ::testing::AssertionFailure() << c.what << ": division by zero";
  }
  for (int k = 0; k < p.n_out; ++k) {
    const DType t = p.out_type[k];
    const auto size = static_cast<int64_t>(size_of(t));
    const char* a = static_cast<char*>(slots[static_cast<size_t>(p.n_in + k)]);
    const char* b = static_cast<char*>(other[static_cast<size_t>(k)]);
    for (int64_t i = 0; i < n + 1; ++i) {  // and nothing past the end
      if (std::memcmp(a + i * size, b + i * size, static_cast<size_t>(size)) == 0) continue;
      const Value x = load_value(a, t, i), y = load_value(b, t, i);
      const bool nans = is_floating(t) && (t == DType::f64 ? x.f64 != x.f64 && y.f64 != y.f64
                                                           : x.f32 != x.f32 && y.f32 != y.f32);
      if (!nans) {
        return ::testing::AssertionFailure()
               << c.what << ": output " << k << ", element " << i << " of " << n << "\n"
               << codegen::emit_c(p, "f");
      }
    }
  }
  return ::testing::AssertionSuccess();
}

/// Which compilers see a case: each, or one in turn, which TANDEM_EVERY_COMPILER=1 makes each.
enum class Compilers { each, in_turn };

/// Compile all cases, `per_unit` per translation unit (in parallel, one per processor), and run
/// both executors on lengths 1..70 and some above 1,000.
inline void expect_same_bits(const std::vector<PlanCase>& cases, size_t per_unit, uint64_t seed,
                             Compilers which = Compilers::each) {
  const std::vector<std::string> paths = compilers();
  ASSERT_FALSE(paths.empty()) << "no C compiler is here to test";
  const char* every = std::getenv("TANDEM_EVERY_COMPILER");
  const size_t turns =
      which == Compilers::in_turn && (!every || !*every || *every == '0') ? paths.size() : 1;
  std::vector<std::pair<std::string, std::vector<size_t>>> jobs;
  for (size_t p = 0; p < paths.size(); ++p) {
    for (size_t k = p % turns; k < cases.size(); k += turns) {
      if (jobs.empty() || jobs.back().first != paths[p] || jobs.back().second.size() == per_unit)
        jobs.push_back({paths[p], {}});
      jobs.back().second.push_back(k);
    }
  }
  std::atomic<size_t> next{0};
  std::mutex lock;
  const auto check = [&](const std::string& path, const std::vector<size_t>& unit) -> std::string {
    const TemporaryDirectory directory;
    // gcc's second, half-width loop for the remainder takes a third of its time.
    std::vector<std::string> flags;
    if (path.find("gcc") != path.npos) flags = {"--param", "vect-epilogues-nomask=0"};
    detail::CCompiler compiler({path, directory.path + "/cache", int64_t{1} << 30, 600, flags});
    std::vector<codegen::JitSource> sources;
    for (const size_t k : unit)
      sources.push_back({"td_" + std::to_string(k), codegen::emit_c(cases[k].plan, "TDM_NAME")});
    const std::string problem = compiler.compile(sources);
    // clang 14 may give up on one ("Cannot emit physreg copy instruction"): it is interpreted then.
    bool gave_up = problem.find("error in backend") != problem.npos;
    if (!problem.empty() && !gave_up) return problem;
    for (size_t at = 0; at < unit.size(); ++at) {
      const size_t k = unit[at];
      const PlanCase& c = cases[k];
      if (!sources[at].code && std::exchange(gave_up, false)) continue;
      if (!sources[at].code) return "no code for " + c.what;
      std::mt19937_64 gen(seed + k);
      std::vector<int64_t> lengths = {64, 70, 1000 + static_cast<int64_t>(gen() % 300)};
      for (int64_t m = 1; m <= 70; m += k % 64 == 0 ? 1 : 17) lengths.push_back(m);
      for (int64_t length : lengths) {
        const auto equal = both_equal(c, sources[at].code, length, gen());
        if (!equal) return equal.message();
      }
    }
    return "";
  };
  const auto work = [&] {
    for (size_t job; (job = next++) < jobs.size();) {
      const std::string bad = check(jobs[job].first, jobs[job].second);
      std::lock_guard hold(lock);
      EXPECT_EQ(bad, "") << jobs[job].first;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned k = 1; k < std::thread::hardware_concurrency(); ++k) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
}

}  // namespace tandem
