// SPDX-License-Identifier: Apache-2.0
// LBFGS: the two-loop recursion over one flat vector, and a line search for the strong Wolfe
// conditions (Nocedal and Wright, algorithms 3.5, 3.6 and 7.4) with PyTorch's constants and order.
#include "tandem/optim/optimizers/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tandem/graph/trace.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::optim {
namespace {

double number(const Tensor& t) { return t.to(DType::f64).item<double>(); }
double product(const Tensor& a, const Tensor& b) { return number(dot(a, b)); }
double largest(const Tensor& t) { return number(amax(abs(t))); }

// Where the cubic through two points with slopes has its minimum, inside the bounds.
double cubic(double x1, double f1, double g1, double x2, double f2, double g2, double low,
             double high) {
  double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  double d2 = std::sqrt(square);
  double at = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                       : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(at, low), high);
}

}  // namespace

struct LBFGS::Point {
  double t, loss;
  Tensor grad;
  double slope;
};

namespace {
// What of the options is kept in the group, as PyTorch does.
struct GroupOptions {
  double lr;
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.at_least = 0});
  }
};
AnyFields rate_of(GroupOptions&& o) { return any_fields(o); }
}  // namespace

LBFGS::LBFGS(ParamList params, LBFGSOptions o) : Optimizer("LBFGS", rate_of({o.lr})), o_(o) {
  check_fields(any_fields(o), "LBFGS");
  TD_CHECK(o.line_search_fn.empty() || o.line_search_fn == "strong_wolfe", Value,
           "LBFGS knows line_search_fn \"strong_wolfe\", got \"{}\"", o.line_search_fn);
  TD_CHECK(params.groups.size() < 2, Value, "LBFGS takes one group, got {}", params.groups.size());
  if (o_.max_eval < 0) o_.max_eval = o.max_iter * 5 / 4;
  add_all(std::move(params));
}

void LBFGS::init(const Options&, size_t i) {
  TD_CHECK(num_groups() == 0, Value, "LBFGS takes one group");
  TD_CHECK(params_of(i).dtype() == params_of(0).dtype(), DType,
           "LBFGS expects parameters of one dtype, got {} and {}", to_string(params_of(0).dtype()),
           to_string(params_of(i).dtype()));
}

void LBFGS::update(Update&) {}

void LBFGS::step_all(SourceLocation) {
  TD_FAIL(Value,
          "LBFGS evaluates the loss several times\nCall step(closure); the closure zeroes the "
          "gradients, computes the loss, calls backward() and returns the loss.");
}

Tensor LBFGS::gather_grad() const {
  std::vector<Tensor> parts;
  for (const Param& p : params()) {
    Tensor g = p.grad();
    parts.push_back(g.defined() ? g.reshape({-1}) : zeros({p.numel()}, p.dtype()));
  }
  return cat(parts, 0);
}

void LBFGS::move(double t, const Tensor& d) {
  int64_t at = 0;
  for (const Param& p : params()) {
    int64_t n = p.numel();
    p.assign_(p.value() + d.narrow(0, at, n).reshape(p.shape()) * t);
    at += n;
  }
}

// The approximate inverse Hessian times -grad; takes the last step into the memory.
Tensor LBFGS::direction(const Tensor& grad) {
  if (n_iter_ == 1) {
    dirs_.clear();
    steps_.clear();
    ro_.clear();
    h_diag_ = 1;
    return -grad;
  }
  Tensor y = grad - prev_grad_, s = d_ * t_;
  double ys = product(y, s);
  if (ys > 1e-10) {
    if (static_cast<int64_t>(dirs_.size()) == o_.history_size) {
      dirs_.erase(dirs_.begin());
      steps_.erase(steps_.begin());
      ro_.erase(ro_.begin());
    }
    dirs_.push_back(y);
    steps_.push_back(s);
    ro_.push_back(1 / ys);
    h_diag_ = ys / product(y, y);
  }
  std::vector<double> al(dirs_.size());
  Tensor q = -grad;
  for (size_t i = dirs_.size(); i-- > 0;) {
    al[i] = product(steps_[i], q) * ro_[i];
    q = q + dirs_[i] * -al[i];
  }
  q = q * h_diag_;
  for (size_t i = 0; i < dirs_.size(); ++i)
    q = q + steps_[i] * (al[i] - product(dirs_[i], q) * ro_[i]);
  return q;
}

// A search along d from the point `start`.
struct LBFGS::Search {
  std::function<Point(double)> evaluate;
  const Point& start;
  double d_norm, tolerance;
  int64_t max, evals = 0, iterations = 0;
  static constexpr double kC1 = 1e-4, kC2 = 0.9;

  Point at(double t) {
    ++evals;
    return evaluate(t);
  }
  bool too_high(const Point& p) const { return p.loss > start.loss + kC1 * p.t * start.slope; }
  bool flat(const Point& p) const { return std::abs(p.slope) <= -kC2 * start.slope; }

  /// Points around a minimum, or the one that fits.
  std::vector<Point> bracket(double t, bool& done) {
    Point old{0, start.loss, start.grad, start.slope}, now = at(t);
    while (iterations < max) {
      if (too_high(now) || (iterations > 1 && now.loss >= old.loss)) return {old, now};
      if ((done = flat(now))) return {now};
      if (now.slope >= 0) return {old, now};
      double next = cubic(old.t, old.loss, old.slope, now.t, now.loss, now.slope,
                          now.t + 0.01 * (now.t - old.t), now.t * 10);
      old = now;
      now = at(next);
      ++iterations;
    }
    return {{0, start.loss, start.grad, start.slope}, now};
  }

  Point run(double first) {
    bool done = false, slow = false;
    std::vector<Point> b = bracket(first, done);
    size_t low = b[0].loss <= b.back().loss ? 0 : 1, high = 1 - low;
    while (!done && iterations < max) {
      double least = std::min(b[0].t, b[1].t), most = std::max(b[0].t, b[1].t);
      if ((most - least) * d_norm < tolerance) break;
      double t = cubic(b[0].t, b[0].loss, b[0].slope, b[1].t, b[1].loss, b[1].slope, least, most);
      double eps = 0.1 * (most - least);
      bool near = std::min(most - t, t - least) < eps;
      if (near && (slow || t >= most || t <= least)) {
        t = std::abs(t - most) < std::abs(t - least) ? most - eps : least + eps;
        slow = false;
      } else {
        slow = near;
      }
      Point p = at(t);
      ++iterations;
      if (too_high(p) || p.loss >= b[low].loss) {
        b[high] = p;
        low = b[0].loss <= b[1].loss ? 0 : 1;
        high = 1 - low;
        continue;
      }
      done = flat(p);
      if (!done && p.slope * (b[high].t - b[low].t) >= 0) b[high] = b[low];
      b[low] = p;
    }
    return b[low];
  }
};

Tensor LBFGS::step(const std::function<Tensor()>& closure, SourceLocation loc) try {
  TD_CHECK(!is_tracing(), Unsupported, "LBFGS reads losses and cannot be traced\nCall it outside.");
  NoGradGuard no_grad;
  const auto evaluate = [&] {
    EnableGradGuard grad;
    return closure();
  };
  Tensor first = evaluate();
  double loss = number(first), lr = option("lr");
  int64_t evals = 1;
  ++func_evals_;
  Tensor grad = gather_grad();
  bool flat = largest(grad) <= o_.tolerance_grad;
  for (int64_t n = 1; !flat && n <= o_.max_iter; ++n) {
    ++n_iter_;
    d_ = direction(grad);
    prev_grad_ = grad;
    prev_loss_ = loss;
    t_ = n_iter_ == 1 ? std::min(1.0, 1 / number(sum(abs(grad)))) * lr : lr;
    double slope = product(grad, d_);
    if (slope > -o_.tolerance_change) break;
    int64_t used = 0;
    if (!o_.line_search_fn.empty()) {
      std::vector<Tensor> x;
      for (const Param& p : params()) x.push_back(p.value());
      Point start{0, loss, grad, slope};
      const auto restore = [&] {
        for (size_t i = 0; i < x.size(); ++i) params()[i].assign_(x[i]);
      };
      const auto along = [&](double t) {
        move(t, d_);
        Point p{t, number(evaluate()), gather_grad(), 0};
        p.slope = product(p.grad, d_);
        restore();
        return p;
      };
      Search search{along, start, largest(d_), o_.tolerance_change, o_.max_eval - evals};
      Point best = search.run(t_);
      used = search.evals;
      t_ = best.t;
      loss = best.loss;
      grad = best.grad;
      move(t_, d_);
      flat = largest(grad) <= o_.tolerance_grad;
    } else {
      move(t_, d_);
      if (n != o_.max_iter) {
        loss = number(evaluate());
        grad = gather_grad();
        flat = largest(grad) <= o_.tolerance_grad;
        used = 1;
      }
    }
    evals += used;
    func_evals_ += used;
    if (evals >= o_.max_eval || largest(d_ * t_) <= o_.tolerance_change ||
        std::abs(loss - prev_loss_) < o_.tolerance_change)
      break;
  }
  return first;
} catch (const Error& e) {
  throw with_place(e, "LBFGS", loc);
}

void LBFGS::extra_state(StateDict& state) const {
  const auto put = [&](const char* name, double v) {
    state[std::string("lbfgs.") + name] = full({}, v, DType::f64);
  };
  put("n_iter", static_cast<double>(n_iter_));
  put("func_evals", static_cast<double>(func_evals_));
  put("t", t_);
  put("H_diag", h_diag_);
  put("prev_loss", prev_loss_);
  if (!d_.defined()) return;
  state["lbfgs.d"] = d_;
  state["lbfgs.prev_flat_grad"] = prev_grad_;
  state["lbfgs.ro"] = tensor(ro_, {ro_.size()});
  if (dirs_.empty()) return;
  state["lbfgs.old_dirs"] = stack(dirs_, 0);
  state["lbfgs.old_stps"] = stack(steps_, 0);
}

void LBFGS::load_extra_state(const StateDict& state, std::vector<std::string>& known, bool apply) {
  int64_t size = 0;
  for (const Param& p : params()) size += p.numel();
  const auto get = [&](const char* name, int rank) {
    known.push_back(std::string("lbfgs.") + name);
    const Tensor* v = state.find(known.back());
    TD_CHECK(!v || (v->dim() == rank &&
                    (rank == 0 || std::string_view(name) == "ro" || v->size(-1) == size)),
             Shape, "LBFGS: '{}' is {}, the parameters have {} elements", known.back(),
             v->shape().to_string(), size);
    return v ? *v : Tensor();
  };
  const auto value = [&](const char* name) {
    Tensor v = get(name, 0);
    TD_CHECK(v.defined(), Value, "LBFGS: the state has no '{}'", known.back());
    return number(v);
  };
  double n_iter = value("n_iter"), evals = value("func_evals"), t = value("t"),
         h_diag = value("H_diag"), prev_loss = value("prev_loss");
  Tensor d = get("d", 1), prev = get("prev_flat_grad", 1), ro = get("ro", 1),
         dirs = get("old_dirs", 2), steps = get("old_stps", 2);
  TD_CHECK(n_iter == 0 || (d.defined() && prev.defined() && ro.defined()), Value,
           "LBFGS: the state has no 'lbfgs.d', 'lbfgs.prev_flat_grad' or 'lbfgs.ro'");
  int64_t n = ro.defined() ? ro.numel() : 0;
  TD_CHECK(n == (dirs.defined() ? dirs.size(0) : 0) && n == (steps.defined() ? steps.size(0) : 0),
           Shape, "LBFGS: 'lbfgs.ro', 'lbfgs.old_dirs' and 'lbfgs.old_stps' differ in length");
  if (!apply) return;
  n_iter_ = static_cast<int64_t>(n_iter);
  func_evals_ = static_cast<int64_t>(evals);
  t_ = t;
  h_diag_ = h_diag;
  prev_loss_ = prev_loss;
  d_ = d;
  prev_grad_ = prev;
  ro_ = ro.defined() ? ro.to_vector<double>() : std::vector<double>();
  dirs_ = dirs.defined() ? unbind(dirs, 0) : std::vector<Tensor>();
  steps_ = steps.defined() ? unbind(steps, 0) : std::vector<Tensor>();
}

}  // namespace tandem::optim
