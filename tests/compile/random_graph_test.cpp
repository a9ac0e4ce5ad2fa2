// SPDX-License-Identifier: Apache-2.0
// Random programs made of the rows of the op driver, compiled against eager: the same bits, with
// gradients in half of them. A failure prints the seed; TANDEM_GRAPH_SEED=N runs only that one,
// TANDEM_GRAPHS=N so many.
#include <cstdlib>
#include <random>

#include "tandem/compile/compile.h"
#include "tests/ops/row_driver.h"
#include "tests/support/init.h"

namespace tandem::rows {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kPrograms = 60;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kPrograms = 60;
#else
constexpr int kPrograms = 2000;
#endif
#else
constexpr int kPrograms = 2000;
#endif

// Rows that a program may use: any values give valid shapes and inputs.
std::vector<Row> usable(bool gradients) {
  std::vector<Row> rows;
  for (const Row& r : all_rows()) {
    const OpDef& op = *find_op(r.op);
    const bool special = r.in.find("regular") != std::string::npos ||
                         r.in.find("spd") != std::string::npos ||
                         r.op.find("_update") != std::string::npos;
    if (special || op.has(kRandom) || op.has(kDataSized) || r.in.empty()) continue;
    if (gradients &&
        (r.off & (kNoGrad | kLastConstant | kFirstConstant) || op.has(kNotDifferentiable)))
      continue;
    rows.push_back(r);
  }
  return rows;
}

// One program: it depends only on the seed, so that every call does the same.
class RandomProgram {
 public:
  RandomProgram(const std::vector<Row>& rows, uint64_t seed) : rows_(rows), seed_(seed) {}

  std::vector<Tensor> inputs() const {
    std::vector<Tensor> x;
    manual_seed(seed_);
    for (const Shape& s : {Shape{4, 3}, Shape{5}, Shape{2, 3, 4}}) x.push_back(randn(s));
    return x;
  }

  std::vector<Tensor> operator()(std::span<const Tensor> x) {
    std::mt19937_64 rng(seed_);
    std::vector<Tensor> pool(x.begin(), x.end());
    const int steps = 3 + static_cast<int>(rng() % 8);
    text.clear();
    for (int k = 0; k < steps; ++k) {
      const Row& row = rows_[rng() % rows_.size()];
      const int64_t n = 2 + static_cast<int64_t>(rng() % 4);
      text += row.op + "(" + row.in + ") n = " + std::to_string(n) + "; ";
      std::vector<Arg> args = make_args(row, n, float32, static_cast<int>(rng() % 5));
      std::vector<std::string> parts = split(row.in, '|');
      for (size_t i = 0; i < args.size(); ++i) {
        if (!args[i].tensor.defined()) continue;
        std::vector<std::string> part = split(parts[i], ' ');
        const std::string domain = part.size() > 1 ? part[1] : "any";
        const Tensor& from = pool[rng() % pool.size()];
        if (args[i].tensor.dtype() == float32 && domain[0] != '=' && rng() % 8 != 0)
          args[i].tensor = into_domain(fit(from, args[i].tensor.shape()), domain);
        else
          args[i].tensor = constant(args[i].tensor);
      }
      for (const Tensor& y : call_row(row, args, n))
        if (y.defined() && y.numel() > 0 && y.numel() < 4000)
          pool.push_back(bounded(y.dtype() == float32 ? y : y.to(float32)));
      if (rng() % 4 == 0) pool.push_back(by_way_of(narrow_type(rng()), pool.back()));
    }
    std::vector<Tensor> out;  // the last ones and one from the middle
    for (size_t i = pool.size() - std::min<size_t>(3, pool.size()); i < pool.size(); ++i)
      out.push_back(pool[i]);
    out.push_back(pool[rng() % pool.size()]);
    return out;
  }

  std::string text;

 private:
  // The values of t, truncated or repeated, in another shape.
  static Tensor fit(const Tensor& t, const Shape& shape) {
    if (t.shape() == shape) return t;
    const int64_t want = shape.numel().value();
    Tensor flat = t.flatten();
    if (flat.numel() < want) flat = repeat(flat, {(want + flat.numel() - 1) / flat.numel()});
    return flat.slice(0, 0, want).reshape(shape);
  }
  static Tensor into_domain(const Tensor& t, const std::string& domain) {
    if (domain == "pos") return abs(t) + 0.3;
    if (domain == "unit") return bounded(t) * 0.85;
    if (domain == "prob") return sigmoid(t) * 0.9 + 0.05;
    if (domain == "gt1") return abs(t) + 1.2;
    if (domain == "holes") return where(t < 0.2, t, zeros_like(t));
    return t;
  }
  // Rows of 16 bits or narrow integers in a chain.
  static DType narrow_type(uint64_t draw) {
    static constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::i32, DType::u8, DType::i16};
    return kTypes[draw % std::size(kTypes)];
  }
  static Tensor by_way_of(DType t, const Tensor& x) {
    Tensor h = (x * 100).to(t);
    h = h * h + h * 3;
    return bounded((where(h > 7, h, h * h) - h).to(float32));
  }
  static Tensor bounded(const Tensor& t) { return t / (abs(t) + 1.0); }

  const std::vector<Row>& rows_;
  uint64_t seed_;
};

int wanted(const char* name, int otherwise) {
  const char* v = std::getenv(name);
  return v ? std::atoi(v) : otherwise;
}

// Runs programs first, first + 1, ...; returns how many were equal bit for bit.
void run_programs(bool gradients) {
  const std::vector<Row> rows = usable(gradients);
  const int only = wanted("TANDEM_GRAPH_SEED", -1);
  const int count = only >= 0 ? 1 : wanted("TANDEM_GRAPHS", kPrograms) / 2;
  const int first = only >= 0 ? only : wanted("TANDEM_GRAPHS_FROM", 1);
  int different = 0;
  std::printf("programs %d to %d over %zu rows\n", first, first + count - 1, rows.size());
  for (int k = 0; k < count; ++k) {
    const auto seed = static_cast<uint64_t>(first + k);
    RandomProgram program(rows, seed);
    const auto body = [&](const std::vector<Tensor>& x) -> std::vector<Tensor> {
      if (!gradients) return program(x);
      const auto total = [&](std::span<const Tensor> v) {
        Tensor sum;
        for (const Tensor& y : program(v)) sum = sum.defined() ? sum + y.sum() : y.sum();
        return Tensors{sum};
      };
      detail::ValueAndGrads r =
          detail::value_and_grads(total, x, {0, 1, 2}, SourceLocation::here());
      r.grads.push_back(r.value[0]);
      return r.grads;
    };
    std::vector<Tensor> x = program.inputs(), want, got;
    auto f = compile(body);
    try {
      want = body(x);
      got = f(x);
    } catch (const Error& e) {
      ADD_FAILURE() << "seed " << seed << ": " << e.what() << "\n" << program.text;
      continue;
    }
    for (size_t i = 0; i < want.size(); ++i) {
      if (same_bits(got[i], want[i])) continue;
      ++different;
      EXPECT_TRUE(close(got[i], want[i], 1e-3, 1))
          << "seed " << seed << ", output " << i << ": " << program.text;
    }
  }
  std::printf("%d results differ in bits\n", different);
}

TEST(RandomGraphs, Forward) { run_programs(false); }
TEST(RandomGraphs, Gradients) { run_programs(true); }

}  // namespace
}  // namespace tandem::rows
