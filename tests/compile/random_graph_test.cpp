// SPDX-License-Identifier: Apache-2.0
// The promise of compile(): the bits of eager code. Random programs, half of them made of the rows
// of the op driver, half of random_program.h, each with and without gradients. A failure prints the
// seed; TANDEM_GRAPH_SEED=N runs only that one, TANDEM_GRAPHS=N so many (`make test-bits`: 20,000).
#include <cstdlib>
#include <random>

#include "tandem/compile/compile.h"
#include "tests/compile/random_program_helper.h"
#include "tests/ops/row_driver.h"
#include "tests/support/init.h"
#include "tests/support/sanitized.h"

namespace tandem::rows {
namespace {

constexpr int kPrograms = kSanitized ? 60 : 800;

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
class RowProgram {
 public:
  RowProgram(const std::vector<Row>& rows, uint64_t seed) : rows_(rows), seed_(seed) {}

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

// NaNs are equal: their payload depends on the order of operands, which compilers may swap.
bool equal_bits(const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return true;
  if (!a.defined() || !b.defined() || a.dtype() != b.dtype() || !is_floating(a.dtype()))
    return false;
  const auto plain = [](const Tensor& t) { return where(isnan(t), 0.0, t.detach()); };
  return same_bits(isnan(a), isnan(b)) && same_bits(plain(a), plain(b));
}

// Compares compiled programs with eager ones, from seed to seed; counts those that differ.
class Comparison {
 public:
  template <class F>
  void one(uint64_t seed, F body, const std::vector<Tensor>& x, const std::string& text) {
    ++count_;
    std::vector<Tensor> want, got;
    auto f = compile(body);
    try {
      manual_seed(seed);
      want = body(x);
    } catch (const Error&) {  // an op refuses its values; compiled, it may be one that nobody reads
      ++refused_;
      return;
    }
    try {
      manual_seed(seed);
      got = f(x);
    } catch (const Error& e) {
      ADD_FAILURE() << "seed " << seed << ", compiled: " << e.what() << "\n" << text;
      return;
    }
    bool same = want.size() == got.size();
    std::string where;
    for (size_t i = 0; same && i < want.size(); ++i)
      if (!equal_bits(got[i], want[i])) same = false, where = std::to_string(i);
    different_ += !same;
    EXPECT_TRUE(same) << "seed " << seed << ", output " << where << ": " << text;
  }
  ~Comparison() {
    std::printf("%d programs, %d differ in bits, %d refused\n", count_, different_, refused_);
    EXPECT_LE(refused_, 1 + count_ / 1000);
  }

 private:
  int count_ = 0, different_ = 0, refused_ = 0;
};

// Calls one(seed) for the seeds first, first + 1, ...; `share` of the programs are its part.
template <class F>
void for_seeds(double share, F one) {
  const int only = wanted("TANDEM_GRAPH_SEED", -1);
  const int count = only >= 0 ? 1 : static_cast<int>(wanted("TANDEM_GRAPHS", kPrograms) * share);
  const int first = only >= 0 ? only : wanted("TANDEM_GRAPHS_FROM", 1);
  for (int k = 0; k < count; ++k) one(static_cast<uint64_t>(first + k));
}

// Programs made of the rows of the op driver.
void run_row_programs(bool gradients) {
  const std::vector<Row> rows = usable(gradients);
  Comparison c;
  for_seeds(0.25, [&](uint64_t seed) {
    RowProgram program(rows, seed);
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
    c.one(seed, body, program.inputs(), program.text);
  });
}

// Programs about layouts, accumulation and loops.
void run_programs(bool gradients) {
  Comparison c;
  for_seeds(0.25, [&](uint64_t seed) {
    test::RandomProgram program(seed);
    const auto body = [&](const std::vector<Tensor>& x) {
      return gradients ? program.gradients(x) : program.run(x);
    };
    c.one(seed, body, program.inputs(), program.text);
  });
}

// What once made a difference of one ulp: the order in which gradients are summed beside a branch
// that needs none, a copy before a sum, the gradient of a scan whose carry and output both count,
// of a value that all its steps read, and of an operand that a branch reads twice; a kernel chosen
// by how its operands lie.
TEST(SameBits, WhereTheyOnceWereNot) {
  using In = const std::vector<Tensor>&;
  manual_seed(3);
  const std::vector<Tensor> x = {randn({33, 9}), randn({33, 9})};
  const auto gradient = [](auto f) {
    return [f](In v) {
      const auto loss = [&f](Tensor a, Tensor b) { return f(a, b); };
      return grad(loss, std::vector<int>{0, 1})(v[0], v[1]);
    };
  };
  Comparison c;
  c.one(1, gradient([](const Tensor& a, const Tensor& b) {
          const Tensor p = a * index_put(b.detach(), {0}, 2), q = a.sin(), r = a.exp();
          return p.sum() + q.sum() + r.sum() + b.sum();
        }),
        x, "a branch without a gradient");
  c.one(
      2, [](In v) { return Tensors{v[0].transpose(0, 1).contiguous().t().sum()}; }, x, "a copy");
  c.one(3, gradient([](const Tensor& a, const Tensor& b) {
          const auto step = [&](const Tensor& s, const Tensor& t) {
            const Tensor next = tanh(s * b[0] + t * s);
            return std::pair(next, next);
          };
          const auto [last, ys] = scan(step, a[0], a);
          return (last * ys.sum({0})).sum() + b.sum() * a.sum();
        }),
        x, "a scan");
  c.one(4, gradient([](const Tensor& a, const Tensor& b) {
          const Tensor y = cond(
              a.sum() > -1e9, [&](const Tensor& t) { return t * b + sin(t) * t; },
              [&](const Tensor& t) { return t; }, a);
          return y.sum() + (a * b).sum() + exp(a).sum();
        }),
        x, "a cond");
  c.one(5, gradient([](const Tensor& a, const Tensor& b) {
          Tensor sum = exp(a).sum();
          for (const Tensor& part : a.split(11))
            sum = sum + (part * part - part * b.slice(0, 0, 11)).sum();
          return sum;
        }),
        {-floor(abs(x[0])), x[1]}, "slices");
  c.one(6, gradient([](const Tensor& a, const Tensor& b) {
          const Tensor w = repeat(b.flatten().slice(0, 0, 1), {9});
          const Tensor y = layer_norm(a.expand({2, 33, 9}), {9}, w);
          return (y * cos(y.detach())).sum() + b.sum();
        }),
        x, "a norm whose operands lie otherwise");
}

TEST(RandomGraphs, RowsForward) { run_row_programs(false); }
TEST(RandomGraphs, RowsGradients) { run_row_programs(true); }
TEST(RandomGraphs, Forward) { run_programs(false); }
TEST(RandomGraphs, Gradients) { run_programs(true); }

}  // namespace
}  // namespace tandem::rows
