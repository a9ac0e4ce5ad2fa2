// SPDX-License-Identifier: Apache-2.0
// Kernels that memory bounds, at sizes and places around what a thread takes at once: groups of
// elements with and without a rest, arrays that start between two groups, broadcast and transposed
// ones, and how reductions are cut.
#include <algorithm>
#include <functional>
#include <optional>

#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/backend.h"
#include "tandem/tandem.h"
#include "tests/gpu/tensors_helper.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

class MemoryBound : public OverDevices {
 protected:
  void SetUp() override {
    OverDevices::SetUp();
    if (IsSkipped()) return;
    manual_seed(11);
    reset_host_runs();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    const HostRuns runs = host_runs();
    EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
  }
  using Function = std::function<Tensor(const Tensor&)>;
  // `see` makes a view of a tensor that lies where it is called for.
  void expect_bits(const Tensor& x, const Function& see, const Function& f, const char* what) {
    const Tensor got = f(see(x.to(device_))), want = f(see(x));
    EXPECT_TRUE(same_bits(got, want)) << what << "\n"
                                      << to_string(got.cpu()) << "\nwanted " << to_string(want);
  }
};
TD_OVER_DEVICES(MemoryBound);

// All texts of kernels that `call` has built.
std::vector<std::string> built_by(const std::function<void()>& call) {
  static std::vector<std::string> texts;
  texts.clear();
  set_build_hook([](const KernelSource& k) { texts.push_back(k.name + " " + k.body); });
  call();
  set_build_hook(nullptr);
  return texts;
}

constexpr int64_t kCounts[] = {1, 2, 3, 4, 7, 8, 9, 64, 127, 1000, 4099};

Tensor same(const Tensor& x) { return x; }

TEST_P(MemoryBound, GroupsOfElementsHaveTheCpusBits) {
  for (const DType t : {float32, bfloat16, float16, float64, int64, uint8}) {
    const Function f = [](const Tensor& x) { return (x + x) * x; };
    for (const int64_t n : kCounts) {
      SCOPED_TRACE(std::string(to_string(t)) + ", " + std::to_string(n));
      const Tensor x = floor(randn({n + 1}) * 9.0).to(t);
      expect_bits(x.slice(0, 0, n, 1), same, f, "aligned");
      expect_bits(
          x, [](const Tensor& y) { return y.slice(0, 1, y.numel(), 1); }, f, "behind one");
    }
  }
}

// Arrays of several types take the same number of elements.
TEST_P(MemoryBound, GroupsOfSeveralTypes) {
  for (const int64_t n : kCounts) {
    SCOPED_TRACE(n);
    const Tensor x = randn({n}) * 3.0, y = randn({n}).to(bfloat16), there = x.to(device_);
    EXPECT_TRUE(same_bits(there.to(bfloat16), x.to(bfloat16)));
    EXPECT_TRUE(same_bits(there + y.to(device_), x + y));
    EXPECT_TRUE(same_bits(there > 0.5, x > 0.5));
    EXPECT_TRUE(same_bits(where(there > 0.5, there, y.to(device_)), where(x > 0.5, x, y)));
    EXPECT_TRUE(same_bits(there.to(int64) * 3, x.to(int64) * 3));
  }
}

// Along the innermost dimension an array is in groups, or one for all.
TEST_P(MemoryBound, GroupsAlongBroadcastDimensions) {
  for (const int64_t n : {8, 12, 9, 64}) {
    SCOPED_TRACE(n);
    const Tensor x = randn({5, 6, n}), there = x.to(device_);
    for (const Shape& shape :
         {Shape{n}, Shape{6, 1}, Shape{5, 1, 1}, Shape{5, 1, n}, Shape{1, 6, n}}) {
      const Tensor b = randn(shape);
      EXPECT_TRUE(same_bits(there * b.to(device_) + 1.0, x * b + 1.0));
    }
    EXPECT_TRUE(same_bits(there.transpose(0, 2) + 1.0, x.transpose(0, 2) + 1.0));
    EXPECT_TRUE(same_bits(there + there.transpose(0, 1).contiguous().transpose(0, 1), x + x));
    EXPECT_TRUE(same_bits(there.slice(2, 0, 8, 1) + 1.0, x.slice(2, 0, 8, 1) + 1.0));
    EXPECT_TRUE(same_bits(there.slice(2, 1, 8, 1) + 1.0, x.slice(2, 1, 8, 1) + 1.0));
    EXPECT_TRUE(same_bits(there.slice(2, 0, n, 2) + 1.0, x.slice(2, 0, n, 2) + 1.0));
  }
  // A function so long that the compiler keeps the group in registers.
  const Function power = [](const Tensor& x) { return pow(x, linspace(0.3, 2, 3).to(x.device())); };
  expect_bits(
      rand({3, 16}) + 0.3, [](const Tensor& x) { return x.t(); }, power, "pow");
}

TEST_P(MemoryBound, CompiledLoopsTakeGroups) {
  const auto f = [](const Tensor& x, const Tensor& b) { return gelu(x * 2.0 + b) * sigmoid(x); };
  const Tensor x = randn({13, 64}), b = randn({64});
  auto compiled = compile(f);
  const Tensor got = compiled(x.to(device_), b.to(device_));
  EXPECT_TRUE(same_bits(got, f(x, b)));
}

TEST_P(MemoryBound, ADivisionByZeroInARest) {
  const Tensor x = arange(5).to(int64) + 7;
  const Tensor by = tensor({1, 1, 1, 1, 0}).to(int64), good = tensor({1, 2, 3, 4, 5}).to(int64);
  EXPECT_TRUE(same_bits(floor_divide(x.to(device_), good.to(device_)), floor_divide(x, good)));
  const std::string text =
      thrown([&] { floor_divide(x.to(device_), by.to(device_)).to_vector<double>(); });
  EXPECT_TRUE(has(text, "zero")) << text;
}

// An aligned array is loaded in groups, another one element by element.
TEST_P(MemoryBound, LoadsAreOf16Bytes) {
  const Tensor x = rand({260}).to(device_);
  auto f = compile([](const Tensor& t) { return (t * 1.25 - t) * t; });
  const auto loads_groups = [&](const Tensor& t) {
    const auto texts = built_by([&] { (void)f(t); });
    EXPECT_FALSE(texts.empty());
    return std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
      return text.find("td_load(4,") != text.npos;
    });
  };
  EXPECT_TRUE(loads_groups(x.slice(0, 0, 256, 1)));
  EXPECT_FALSE(loads_groups(x.slice(0, 1, 257, 1)));
}

// ---- copies

TEST_P(MemoryBound, CopiesOfTransposedArrays) {
  for (const DType t : {float32, bfloat16, int64, uint8}) {
    SCOPED_TRACE(to_string(t));
    const Tensor x = floor(rand({3, 40, 5, 70}) * 100.0).to(t), there = x.to(device_);
    for (const Shape& order :
         {Shape{0, 1, 3, 2}, Shape{0, 3, 2, 1}, Shape{3, 1, 2, 0}, Shape{1, 3, 0, 2},
          Shape{2, 3, 1, 0}, Shape{0, 2, 1, 3}, Shape{2, 0, 1, 3}}) {
      EXPECT_TRUE(same_bits(there.permute(order).contiguous(), x.permute(order).contiguous()));
    }
    const auto parts = [](const Tensor& y) {
      return y.slice(3, 3, 68, 1).slice(1, 1, 40, 1).transpose(1, 3).contiguous();
    };
    EXPECT_TRUE(same_bits(parts(there), parts(x)));
    EXPECT_TRUE(same_bits(flip(there, {1, 3}), flip(x, {1, 3})));
    EXPECT_TRUE(same_bits(flip(there.transpose(1, 3), {1}), flip(x.transpose(1, 3), {1})));
    EXPECT_TRUE(
        same_bits(cat({there, there.slice(1, 0, 8, 1)}, 1), cat({x, x.slice(1, 0, 8, 1)}, 1)));
    EXPECT_TRUE(same_bits(there.slice(3, 0, 1, 1).expand({3, 40, 5, 70}).contiguous(),
                          x.slice(3, 0, 1, 1).expand({3, 40, 5, 70}).contiguous()));
    EXPECT_TRUE(same_bits(there.slice(2, 1, 3, 1).contiguous(), x.slice(2, 1, 3, 1).contiguous()));
  }
}

TEST_P(MemoryBound, Fills) {
  const DeviceGuard guard(device_);
  for (const int64_t n : kCounts) {
    const Tensor x = full({n}, 2.5f), halves = full({n}, 2.5f, float16);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(static_cast<size_t>(n), 2.5f));
    EXPECT_TRUE(same_bits(halves.to(float32), x));
  }
}

// ---- writes by index

// Many equal places, places that are left out, several chunks: the order of the indices, to the
// bit.
TEST_P(MemoryBound, GradientsOfEmbeddings) {
  for (const int64_t width : {1, 3, 8, 40, 64}) {
    for (const DType t : {float32, bfloat16}) {
      SCOPED_TRACE(std::to_string(width) + std::string(" ") + to_string(t));
      const Tensor w = randn({50, width}).to(t), ids = floor(square(rand({700})) * 50.0).to(int64);
      const Tensor gy = randn({700, width}).to(t);
      const auto gradient = [&](tandem::Device d, std::optional<int64_t> padding) {
        const Tensor leaf = w.to(d).detach().requires_grad_();
        embedding(ids.to(d).reshape({7, 100}), leaf, padding)
            .backward(gy.to(d).reshape({7, 100, width}));
        return leaf.grad();
      };
      EXPECT_TRUE(same_bits(gradient(device_, {}), gradient(cpu, {})));
      EXPECT_TRUE(same_bits(gradient(device_, 3), gradient(cpu, 3)));
      EXPECT_TRUE(same_bits(embedding(ids.to(device_), w.to(device_)), embedding(ids, w)));
    }
  }
}

TEST_P(MemoryBound, WritesByManyIndices) {
  const int64_t n = 20000;  // two chunks
  const Tensor x = floor(randn({9, 60, 4}) * 20.0), at = floor(rand({n}) * 60.0).to(int64) - 60;
  const Tensor rows = floor(rand({n}) * 9.0).to(int32), v = floor(randn({n, 4}) * 20.0);
  const auto there = [&](const Tensor& t) { return t.to(device_); };
  for (const bool add : {false, true}) {
    EXPECT_TRUE(same_bits(index_put(there(x), {there(rows), there(at)}, there(v), add),
                          index_put(x, {rows, at}, v, add)));
    const Tensor flat = x.flatten(), of_flat = floor(rand({n}) * 2160.0).to(int64);
    EXPECT_TRUE(same_bits(index_put(there(flat), {there(of_flat)}, there(v.select(1, 0)), add),
                          index_put(flat, {of_flat}, v.select(1, 0), add)));
  }
  // [outer | index | inner].
  const Tensor few = at.slice(0, 0, 300, 1) + 60;
  const Tensor source = randn({9, 300, 4});
  EXPECT_TRUE(
      same_bits(index_add(there(x), 1, there(few), there(source)), index_add(x, 1, few, source)));
  const std::string text =
      thrown([&] { index_add(there(x), 1, there(few + 55), there(source)).to_vector<float>(); });
  EXPECT_TRUE(has(text, "out of range")) << text;
}

// The same index for all lines, an index for each, few long lines and many short ones.
TEST_P(MemoryBound, Scatters) {
  const auto there = [&](const Tensor& t) { return t.to(device_); };
  for (const Shape& shape : {Shape{700}, Shape{2000, 3}, Shape{40, 50}}) {
    for (const int dim : {0, shape.rank() - 1}) {
      SCOPED_TRACE(to_string(shape) + " along " + std::to_string(dim));
      Shape of = shape;
      of[dim] = 30;
      Shape once = shape;
      for (int k = 0; k < once.rank(); ++k) once[k] = 1;
      once[dim] = shape[dim];
      const Tensor x = floor(randn(of) * 9.0), v = floor(randn(shape) * 9.0);
      for (const Tensor& at : {floor(rand(shape) * 30.0).to(int64),
                               floor(rand(once) * 30.0).to(int32).expand(shape)}) {
        const Tensor a = there(at.contiguous());
        EXPECT_TRUE(same_bits(scatter(there(x), dim, a, there(v)), scatter(x, dim, at, v)));
        EXPECT_TRUE(same_bits(scatter_add(there(x), dim, a, there(v)), scatter_add(x, dim, at, v)));
      }
    }
  }
  const Tensor x = randn({30, 64}), at = floor(rand({900, 1}) * 30.0).to(int64),
               v = randn({900, 64});
  EXPECT_TRUE(same_bits(scatter_add(there(x), 0, there(at).expand({900, 64}), there(v)),
                        scatter_add(x, 0, at.expand({900, 64}), v)));
  const std::string text = thrown([&] {
    scatter_add(there(x), 0, there(at + 20).expand({900, 64}), there(v)).to_vector<float>();
  });
  EXPECT_TRUE(has(text, "out of range")) << text;
}

// ---- reductions

struct Reduced {
  Shape shape;
  std::vector<int64_t> dims;
};
const Reduced kReduced[] = {
    {{3}, {0}},
    {{4099}, {0}},
    {{300000}, {0}},
    {{70001}, {0}},
    {{1000, 24}, {0}},
    {{1000, 7}, {0}},
    {{3000, 64}, {0}},
    {{5, 600}, {0}},
    {{2, 3000}, {0}},
    {{3000, 2}, {1}},
    {{40, 600}, {1}},
    {{300, 33}, {1}},
    {{7, 40000}, {1}},
    {{3, 50, 20, 8}, {0, 1, 2}},
    {{4, 6, 9, 9}, {0, 2, 3}},
    {{2, 300, 40}, {1}},
    {{1200, 1, 12}, {0}},
    {{6, 200, 12}, {0, 2}},
};

TEST_P(MemoryBound, ReductionsOfAllCuts) {
  for (const Reduced& r : kReduced) {
    if (left_out(&r - kReduced)) continue;
    SCOPED_TRACE(to_string(r.shape));
    const Tensor x = floor(randn(r.shape) * 8.0), there = x.to(device_);
    // Sums of small whole numbers are exact in any order.
    EXPECT_TRUE(same_bits(there.sum(r.dims), x.sum(r.dims)));
    EXPECT_TRUE(same_bits(there.to(int64).sum(r.dims), x.to(int64).sum(r.dims)));
    EXPECT_TRUE(same_bits(there.amax(r.dims), x.amax(r.dims)));
    EXPECT_TRUE(same_bits((there > 20.0).any(r.dims), (x > 20.0).any(r.dims)));
    const Tensor narrow = x.to(bfloat16);
    EXPECT_TRUE(
        same_bits(narrow.to(device_).to(float32).sum(r.dims), narrow.to(float32).sum(r.dims)));
    EXPECT_TRUE(same_bits(narrow.to(device_).amax(r.dims), narrow.amax(r.dims)));
    EXPECT_TRUE(allclose(there.var(r.dims).cpu(), x.var(r.dims), 1e-4, 1e-5));
    if (r.dims.size() > 1) continue;
    const int64_t d = r.dims[0];
    EXPECT_TRUE(same_bits(argmax(there, d), argmax(x, d)));
    EXPECT_TRUE(same_bits(argmax(there.to(bfloat16), d), argmax(narrow, d)));
  }
}

// Transposed, from an odd place, with a step: the same elements in the same order.
TEST_P(MemoryBound, ReductionsOfViews) {
  const Tensor x = floor(randn({40, 50, 24}) * 8.0), there = x.to(device_);
  const Function views[] = {
      [](const Tensor& t) { return t.transpose(0, 2); },
      [](const Tensor& t) { return t.transpose(0, 1); },
      [](const Tensor& t) { return t.slice(2, 1, 24, 1); },
      [](const Tensor& t) { return t.slice(2, 0, 24, 3); },
      [](const Tensor& t) { return t.slice(0, 3, 37, 2).flatten(0, 1); },
      [](const Tensor& t) { return t.flatten().slice(0, 1, 40001, 1); },
      [](const Tensor& t) {
        return t.slice(1, 0, 1, 1).expand({40, 50, 24});
      },
  };
  for (size_t k = 0; k < std::size(views); ++k) {
    if (left_out(k)) continue;
    const Tensor a = views[k](there), b = views[k](x);
    for (int64_t d = 0; d < b.dim(); ++d) {
      SCOPED_TRACE(std::to_string(k) + ", " + std::to_string(d));
      EXPECT_TRUE(same_bits(a.sum({d}), b.sum({d})));
      EXPECT_TRUE(same_bits(argmax(a, d), argmax(b, d)));
    }
  }
}

// The order of a sum follows from the shape: not from the run, nor from the address.
TEST_P(MemoryBound, SumsHaveTheSameBitsInEachRun) {
  for (const Shape& shape : {Shape{3000, 64}, Shape{100, 40}, Shape{64, 3000}, Shape{150000}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = randn(shape).to(device_);
    const int64_t n = x.numel();
    const Tensor odd = cat({zeros({1}).to(device_), x.flatten()}, 0).slice(0, 1, n + 1, 1);
    for (int64_t d = 0; d < x.dim(); ++d) {
      const Tensor want = x.sum({d});
      EXPECT_TRUE(same_bits(x.sum({d}), want));
      EXPECT_TRUE(same_bits(odd.reshape(shape).sum({d}), want));
      EXPECT_TRUE(allclose(want.cpu(), x.cpu().sum({d}), 1e-4, 1e-3));
    }
  }
}

}  // namespace
}  // namespace tandem::gpu
