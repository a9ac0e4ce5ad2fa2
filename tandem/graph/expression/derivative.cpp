// SPDX-License-Identifier: Apache-2.0
// Forward-mode symbolic differentiation over a ScalarGraph, which keeps the branches of a `select`
// apart (no 0 * inf), then the choice of the form that keeps the fewest tensors alive.
#include "tandem/graph/expression/derivative.h"

#include <memory>
#include <mutex>
#include <numbers>

#include "tandem/graph/apply.h"
#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/graph/infer.h"

namespace tandem {
namespace {

constexpr double kLn2 = 0.69314718055994530942;
constexpr double kLn10 = 2.30258509299404568402;
constexpr double kSqrtPi = 1.77245385090551602730;
constexpr double kSqrtTwoPi = 2.50662827463100050242;

// Trigamma, the derivative of digamma, as an expression (it differentiates to all polygammas):
// reflection below 1/2, ten recurrence steps, asymptotic series (Abramowitz & Stegun 6.4.12).
E trigamma(const E& x) {
  const E low = x < 0.5;
  E z = where(low, 1 - x, x);
  E sum = 0.0;
  for (int k = 0; k < 10; ++k) {
    sum = sum + 1 / (z * z);
    z = z + 1;
  }
  const E r = 1 / (z * z);
  const E series =
      1 / z + 0.5 * r +
      r / z *
          (1.0 / 6 -
           r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30 - r * (5.0 / 66 - r * (691.0 / 2730 -
                                                                                r * (7.0 / 6)))))));
  const E s = sin(std::numbers::pi * x);
  const E value = sum + series;
  return where(low, std::numbers::pi * std::numbers::pi / (s * s) - value, value);
}

bool is_number(const E& e, double v) { return e.is_number() && e.number().to_double() == v; }

// The derivative of every node for one input. An undefined E is a zero derivative.
class Differ {
 public:
  Differ(ScalarGraph& g, int input) : g_(g), input_(input) {}

  bool refused = false;  ///< a function on the path has no derivative for this input

  // Factor times a derivative: structural zeros are eliminated, and a select with a numeric branch
  // takes the factor inside, so that it never meets the unselected branch.
  E product(const E& factor, const E& d) {
    if (!d.defined() || is_number(d, 0)) return E();
    if (d.is_number()) return factor * d;
    const ScalarNode n = g_.nodes[d.id()];
    if (n.op == ScalarOp::select) {
      const E a = g_.at(n.b), b = g_.at(n.c);
      if (a.is_number() || b.is_number() || keeps_branches(n.b) || keeps_branches(n.c))
        return where(g_.at(n.a), or_zero(product(factor, a)), or_zero(product(factor, b)));
    }
    if (n.op == ScalarOp::neg) return -product(factor, g_.at(n.a));
    if (n.op == ScalarOp::div && g_.at(n.a).is_number())
      return product(factor, g_.at(n.a)) / g_.at(n.b);
    return factor * d;
  }

  E of(int id) {
    if (id >= static_cast<int>(done_.size())) done_.resize(id + 1, 0), memo_.resize(id + 1);
    if (done_[id]) return memo_[id];
    const E d = make(id);
    // make() may have added nodes; the slots of this id exist already.
    done_[id] = 1;
    memo_[id] = d;
    return d;
  }

 private:
  static E or_zero(const E& e) { return e.defined() ? e : E(0); }
  bool keeps_branches(int id) const {
    const ScalarNode& n = g_.nodes[id];
    return n.op == ScalarOp::select &&
           (g_.nodes[n.b].op == ScalarOp::constant || g_.nodes[n.c].op == ScalarOp::constant);
  }
  static E sum(const E& a, const E& b) { return !a.defined() ? b : !b.defined() ? a : a + b; }
  static E minus(const E& a) { return a.defined() ? -a : a; }

  E make(int id) {
    const ScalarNode n = g_.nodes[id];  // a copy: the vector may grow
    if (n.op == ScalarOp::input) return n.input == input_ ? E(1) : E();
    if (n.op == ScalarOp::constant) return E();
    if (n.op == ScalarOp::select) {
      const E da = of(n.b), db = of(n.c);
      if (!da.defined() && !db.defined()) return E();
      return g_.make(ScalarOp::select, g_.at(n.a), or_zero(da), or_zero(db));
    }
    return n.b < 0 ? unary(n, g_.at(id)) : binary(n, g_.at(id));
  }

  E unary(const ScalarNode& n, const E& y) {
    const E da = of(n.a);
    if (!da.defined()) return E();
    if (n.op == ScalarOp::neg) return -da;
    const E slope = slope_of(n.op, g_.at(n.a), y);
    return slope.defined() ? product(slope, da) : E();
  }

  // dy/da of y = op(a); undefined is zero.
  static E slope_of(ScalarOp op, const E& a, const E& y) {
    switch (op) {
      case ScalarOp::abs:
        return sign(a);
      case ScalarOp::sqrt:
        return 0.5 / y;
      case ScalarOp::rsqrt:
        return -0.5 * (y * y * y);
      case ScalarOp::exp:
        return y;
      case ScalarOp::exp2:
        return y * kLn2;
      case ScalarOp::expm1:
        return exp(a);
      case ScalarOp::log:
        return 1 / a;
      case ScalarOp::log2:
        return 1 / (a * kLn2);
      case ScalarOp::log10:
        return 1 / (a * kLn10);
      case ScalarOp::log1p:
        return 1 / (a + 1);
      case ScalarOp::sin:
        return cos(a);
      case ScalarOp::cos:
        return -sin(a);
      case ScalarOp::tan:
        return 1 + y * y;
      case ScalarOp::asin:
        return rsqrt(1 - a * a);
      case ScalarOp::acos:
        return -rsqrt(1 - a * a);
      case ScalarOp::atan:
        return 1 / (a * a + 1);
      case ScalarOp::sinh:
        return cosh(a);
      case ScalarOp::cosh:
        return sinh(a);
      case ScalarOp::tanh:
        return 1 - y * y;
      case ScalarOp::asinh:
        return rsqrt(a * a + 1);
      case ScalarOp::acosh:
        return rsqrt(a * a - 1);
      case ScalarOp::atanh:
        return 1 / (1 - a * a);
      case ScalarOp::erf:
        return 2 / kSqrtPi * exp(-(a * a));
      case ScalarOp::erfc:
        return -(2 / kSqrtPi * exp(-(a * a)));
      case ScalarOp::erfinv:
        return kSqrtPi / 2 * exp(y * y);
      case ScalarOp::sigmoid:
        return y * (1 - y);
      case ScalarOp::erfcx:
        return 2 * (a * y - 1 / kSqrtPi);
      case ScalarOp::ndtri:
        return kSqrtTwoPi * exp(0.5 * (y * y));
      case ScalarOp::i0e:
        return i1e(a) - sign(a) * y;
      case ScalarOp::i1e:  // I1(x) / x is 1/2 at 0
        return i0e(a) - where(a == 0, 0.5, (sign(a) + 1 / a) * y);
      case ScalarOp::lgamma:
        return digamma(a);
      case ScalarOp::digamma:
        return trigamma(a);
      default:
        return E();  // step functions and truth values
    }
  }

  E binary(const ScalarNode& n, const E& y) {
    const E a = g_.at(n.a), b = g_.at(n.b);
    switch (n.op) {
      case ScalarOp::add:
        return sum(of(n.a), of(n.b));
      case ScalarOp::sub:
        return sum(of(n.a), minus(of(n.b)));
      case ScalarOp::mul:
        return sum(product(b, of(n.a)), product(a, of(n.b)));
      case ScalarOp::div: {
        const E da = of(n.a), db = of(n.b);
        E d;
        if (da.defined()) d = da / b;
        if (!db.defined()) return d;
        const E slope = a.is_number() && is_number(a, 1) ? -(y * y) : -(y / b);
        return sum(d, product(slope, db));
      }
      case ScalarOp::remainder:
        return sum(of(n.a), minus(product(floor_div(a, b), of(n.b))));
      case ScalarOp::fmod:
        return sum(of(n.a), minus(product(trunc_div(a, b), of(n.b))));
      case ScalarOp::pow:
        return sum(product(where(b == 0, 0, b * pow(a, b - 1)), of(n.a)),
                   power_by_exponent(a, b, y, of(n.b)));
      case ScalarOp::atan2: {
        // The origin has no direction: there both are 0.
        const E square = a * a + b * b;
        const auto part = [&](const E& side) { return where(square == 0, 0, side / square); };
        return sum(product(part(b), of(n.a)), minus(product(part(a), of(n.b))));
      }
      case ScalarOp::zeta:
        refuse_first(n);
        return product(-a * zeta(a + 1, b), of(n.b));
      case ScalarOp::gammainc:
        refuse_first(n);
        return product(gamma_density(a, b), of(n.b));
      case ScalarOp::gammaincc:
        refuse_first(n);
        return minus(product(gamma_density(a, b), of(n.b)));
      case ScalarOp::max:  // a NaN is the result of both
        return extreme(a, b, !(a < b), !(a > b), of(n.a), of(n.b));
      case ScalarOp::min:
        return extreme(a, b, !(a > b), !(a < b), of(n.a), of(n.b));
      case ScalarOp::fmax:
        return extreme(a, b, a > b || isnan(b), !(a > b || isnan(b)), of(n.a), of(n.b));
      case ScalarOp::fmin:
        return extreme(a, b, a < b || isnan(b), !(a < b || isnan(b)), of(n.a), of(n.b));
      default:
        return E();
    }
  }

  // There is no derivative by the first operand: record it if that depends on the variable.
  void refuse_first(const ScalarNode& n) { refused |= of(n.a).defined(); }
  static E gamma_density(const E& a, const E& x) { return exp((a - 1) * log(x) - x - lgamma(a)); }

  // 0 ^ b is constant in b, as long as it is 0.
  E power_by_exponent(const E& a, const E& b, const E& y, const E& db) {
    if (!db.defined()) return E();
    return product(where(a == 0 && b >= 0, 0, y * log(a)), db);
  }

  // The winner takes the gradient, a tie halves it.
  E extreme(const E& a, const E& b, const E& first, const E& second, const E& da, const E& db) {
    const E to_a = product(where(a == b, 0.5, where(first, 1, 0)), da);
    return sum(to_a, product(where(a == b, 0.5, where(second, 1, 0)), db));
  }

  ScalarGraph& g_;
  int input_;
  std::vector<char> done_;
  std::vector<E> memo_;
};

// ---- the derived row

double cost_of(ScalarOp op) {
  if (op == ScalarOp::input || op == ScalarOp::constant) return 0;
  if (op >= ScalarOp::zeta && op <= ScalarOp::gammaincc) return 400;
  return op >= ScalarOp::exp && op <= ScalarOp::digamma ? 10 : op == ScalarOp::pow ? 20 : 1;
}

// What a candidate expression reads and costs.
struct Form {
  std::vector<char> reads;  // per input of the working graph
  int live = 0;
  double cost = 0;
};

Form form_of(const ScalarGraph& g, int id, const std::vector<char>& is_tensor) {
  Form f;
  f.reads.assign(g.n_in, 0);
  std::vector<char> needed(g.nodes.size(), 0);
  needed[id] = 1;
  for (int k = id; k >= 0; --k) {
    if (!needed[k]) continue;
    const ScalarNode& n = g.nodes[k];
    f.cost += cost_of(n.op);
    if (n.op == ScalarOp::input) f.reads[n.input] = 1;
    for (int o : {n.a, n.b, n.c})
      if (o >= 0) needed[o] = 1;
  }
  for (int i = 0; i < g.n_in; ++i) f.live += f.reads[i] && is_tensor[i];
  return f;
}

// The working graph: the op's inputs, then y, then g.
struct Work {
  explicit Work(int n_in) : graph(n_in + 2), n(n_in) {}
  ScalarGraph graph;
  int n;
  E y() { return graph.input(n); }
  E g() { return graph.input(n + 1); }
};

// g * dy/dx_i in the working graph; undefined: zero.
E gradient_of(const OpDef& op, int input, Work& w, bool& refused) {
  E in[kMaxOpIns];
  for (int i = 0; i < w.n; ++i) in[i] = w.graph.input(i);
  if (op.expr_grad_fn) {
    const E y = w.y();
    E d[kMaxOpIns];
    op.expr_grad_fn(in, &y, w.g(), d);
    if (d[input].defined()) return d[input];  // else the symbolic one
  }
  const ScalarGraph& forward = expr_of(op);
  std::vector<E> copy(forward.nodes.size());
  for (int i = 0; i < w.n; ++i) copy[i] = in[i];
  const E root = w.graph.import(forward, forward.outputs[0], copy);
  if (root.is_number()) return E();
  Differ differ(w.graph, input);
  const E d = differ.product(w.g(), differ.of(root.id()));
  refused = differ.refused;
  if (!d.defined() || d.is_number()) return E();
  // Where the derivative contains the forward expression, y may be read instead.
  if (w.graph.nodes[root.id()].op == ScalarOp::input) return d;
  std::vector<char> is_tensor(w.n + 2, 1);
  for (int i = 0; i < w.n; ++i) is_tensor[i] = OpDef::last_char(op.in_names[i]) != '$';
  is_tensor[w.n + 1] = 0;
  ScalarGraph other(w.n + 2);
  std::vector<E> by_y(w.graph.nodes.size());
  for (int i = 0; i < w.n + 2; ++i) by_y[i] = other.input(i);
  by_y[root.id()] = other.input(w.n);
  const int with_y = other.import(w.graph, d.id(), by_y).id();
  const Form a = form_of(w.graph, d.id(), is_tensor), b = form_of(other, with_y, is_tensor);
  if (b.live > a.live || (b.live == a.live && b.cost > a.cost)) return d;
  std::vector<E> back(other.nodes.size());
  for (int i = 0; i < w.n + 2; ++i) back[i] = w.graph.input(i);
  return w.graph.import(other, with_y, back);
}

bool has_no_gradient(const OpDef& op) {
  return op.has(kZeroGrad) || op.has(kNotDifferentiable) || op.types == Types::compare ||
         op.types == Types::logical || op.types == Types::bits;
}

std::unique_ptr<detail::DerivedOp> row_of(const OpDef& op, int input, Work& w, const E& d,
                                          const std::vector<char>& reads) {
  OpDef base;
  base.family = Family::pointwise;
  base.types = Types::arith;
  base.expr_fn = detail::derived_expr_mark;
  base.infer_fn = infer_pointwise;
  base.reference_fn = pointwise_reference;
  base.n_in = 1;
  for (int i = 0; i <= w.n; ++i) base.n_in += reads[i];
  TD_ASSERT(base.n_in <= kMaxOpIns);
  auto row = std::make_unique<detail::DerivedOp>(base, base.n_in);
  // Names of inputs that repeat in a second derivative get a number.
  row->texts.reserve(kMaxOpIns + 2);
  row->texts.push_back(fmt::format("{}_grad{}", op.name, input));
  row->name = row->texts.back().c_str();
  row->texts.push_back(fmt::format("Derivative of {} for input {}.", op.name, input));
  row->doc_text = row->texts.back().c_str();
  std::vector<E> place(w.graph.nodes.size());
  int k = 0;
  auto add = [&](int from, const std::string& name) {
    row->texts.push_back(name);
    row->in_names[k] = row->texts.back().c_str();
    place[from] = row->graph.input(k++);
  };
  add(w.n + 1, "g");
  for (int i = 0; i < w.n; ++i)
    if (reads[i]) {
      const bool taken = std::string_view(op.in_names[i]) == "g";
      add(i, taken ? "g_in" : op.in_names[i]);
    }
  if (reads[w.n]) add(w.n, "y");
  row->graph.add_output(row->graph.import(w.graph, d.id(), place));
  return row;
}

const DerivedRow& make_derived(const OpDef& op, int input) {
  static const DerivedRow kZero;
  static const DerivedRow kIdentity{DerivedRow::Kind::identity};
  static const DerivedRow kRefused{DerivedRow::Kind::refused};
  if (has_no_gradient(op)) return kZero;
  TD_CHECK(
      op.n_out == 1, Unsupported,
      "op '{}' has {} outputs and no derivative\nMark it kNotDifferentiable or give it .vjp().",
      op.name, op.n_out);
  if (op.types == Types::cast) return kIdentity;
  Work w(op.n_in);
  bool refused = false;
  const E d = gradient_of(op, input, w, refused);
  if (refused) return kRefused;
  if (!d.defined() || d.is_number()) return kZero;
  if (d.id() == w.g().id()) return kIdentity;
  const Form f = form_of(w.graph, d.id(), std::vector<char>(w.n + 2, 1));
  auto* made = new DerivedRow{DerivedRow::Kind::row};
  for (int i = 0; i < w.n; ++i) made->uses_in |= uint32_t{static_cast<uint8_t>(f.reads[i])} << i;
  made->uses_out = f.reads[w.n];
  detail::DerivedOp* row = row_of(op, input, w, d, f.reads).release();
  runtime_of(*row);
  made->row = row;
  return *made;
}

}  // namespace

const DerivedRow& derived_row(const OpDef& op, int input) {
  OpRuntime& r = runtime_of(op);
  TD_ASSERT(input >= 0 && input < op.n_in);
  std::atomic<const DerivedRow*>& slot = r.derivative[input];
  if (const DerivedRow* d = slot.load(std::memory_order_acquire)) return *d;
  static std::mutex lock;
  std::lock_guard hold(lock);
  if (const DerivedRow* d = slot.load(std::memory_order_acquire)) return *d;
  const DerivedRow& d = make_derived(op, input);
  slot.store(&d, std::memory_order_release);
  return d;
}

uint32_t pointwise_saves_in(const OpDef& op, uint32_t wanted) {
  uint32_t bits = 0;
  for (int i = 0; i < op.n_in; ++i)
    if (wanted >> i & 1) bits |= derived_row(op, i).uses_in;
  return bits;
}

uint32_t pointwise_saves_out(const OpDef& op, uint32_t wanted) {
  uint32_t bits = 0;
  for (int i = 0; i < op.n_in; ++i)
    if (wanted >> i & 1) bits |= derived_row(op, i).uses_out;
  return bits;
}

void pointwise_vjp(VjpCall& c) {
  const OpDef& op = *c.node.op;
  if (!c.grad().defined()) return;
  const auto has_gradient = [&](int i) {
    return c.needs(i) && derived_row(op, i).kind != DerivedRow::Kind::zero;
  };
  int last = c.n_in() - 1;
  while (last >= 0 && !has_gradient(last)) --last;
  for (int i = 0; i <= last; ++i) {
    if (!has_gradient(i)) continue;
    const DerivedRow& d = derived_row(op, i);
    TD_CHECK(d.kind != DerivedRow::Kind::refused, Unsupported,
             "{} has no derivative by its input '{}', as in PyTorch\n"
             "Give that input as a number, or detach() it.",
             op.name, op.in_names[i]);
    Tensor r = i == last ? c.take_grad() : c.grad();
    if (d.kind == DerivedRow::Kind::row) {
      SmallVec<Operand, 4> in;
      in.emplace_back(std::move(r));
      for (int k = 0; k < c.n_in(); ++k) {
        if (!(d.uses_in >> k & 1)) continue;
        if (c.has(k))
          in.emplace_back(c.in(k));
        else
          in.emplace_back(c.scalar(k));
      }
      if (d.uses_out) in.emplace_back(c.out(0));
      Tensor out[kMaxOpOuts];
      apply(*d.row, nullptr, in, out, c.loc());
      r = std::move(out[0]);
    }
    if (!(r.shape() == c.in_shape(i))) {
      const ShapeAttrs to{c.in_shape(i)};
      r = call(op::sum_to, &to, c.loc(), std::move(r));
    }
    if (r.dtype() != c.in_dtype(i)) {
      const CastAttrs to{c.in_dtype(i)};
      r = call(op::cast, &to, c.loc(), std::move(r));
    }
    c.results[i] = std::move(r);
  }
}

}  // namespace tandem
