// SPDX-License-Identifier: Apache-2.0
// Interned symbolic sizes. An expression is a polynomial with integer coefficients over atoms (a
// symbol, or floordiv, mod, min, max of expressions), kept in a fixed order, so that equal normal
// forms are the same 8 bytes. Only traces use this; numbers are handled in the header.
#include "tandem/tensor/dim.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/tensor/dim_parts.h"

namespace tandem {
namespace {

/// Product of atoms, sorted by id, repeated for powers; empty is 1.
using Monomial = std::vector<int>;
struct Term {
  Monomial atoms;
  int64_t factor;
};
/// Sorted by before(); no zero factors. Empty is 0.
using Poly = std::vector<Term>;

struct Atom {
  char kind;  ///< 's'ymbol, '/', '%', '<' (min), '>' (max)
  std::string name;
  std::vector<Dim> args;
};

/// Graded order: higher degree first, then by atoms. Compatible with products, so that long
/// division is exact where possible.
bool before(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size()) return a.size() > b.size();
  return a < b;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  TD_CHECK(!__builtin_mul_overflow(a, b, &r), Value, "a size of {} * {} does not fit 63 bits", a,
           b);
  return r;
}
int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  TD_CHECK(!__builtin_add_overflow(a, b, &r), Value, "a size of {} + {} does not fit 63 bits", a,
           b);
  return r;
}
int64_t floor_div(int64_t a, int64_t b) {
  TD_CHECK(b != 0, Value, "floordiv: the divisor is 0");
  const int64_t q = b == -1 ? checked_mul(a, -1) : a / b;
  return q - (q * b != a && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

Poly number(int64_t v) { return v == 0 ? Poly{} : Poly{{{}, v}}; }
bool is_number(const Poly& p) { return p.empty() || (p.size() == 1 && p[0].atoms.empty()); }
int64_t constant_of(const Poly& p) {
  return !p.empty() && p.back().atoms.empty() ? p.back().factor : 0;
}

/// a + scale * b
Poly add(const Poly& a, const Poly& b, int64_t scale) {
  Poly out;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && before(a[i].atoms, b[j].atoms))) {
      out.push_back(a[i++]);
    } else if (i == a.size() || before(b[j].atoms, a[i].atoms)) {
      out.push_back({b[j].atoms, checked_mul(b[j].factor, scale)});
      ++j;
    } else {
      const int64_t f = checked_add(a[i].factor, checked_mul(b[j].factor, scale));
      if (f != 0) out.push_back({a[i].atoms, f});
      ++i;
      ++j;
    }
  }
  return out;
}
Poly times_term(const Poly& a, const Term& t) {
  Poly out;
  for (const Term& x : a) {
    Monomial m(x.atoms.size() + t.atoms.size());
    std::merge(x.atoms.begin(), x.atoms.end(), t.atoms.begin(), t.atoms.end(), m.begin());
    out.push_back({std::move(m), checked_mul(x.factor, t.factor)});
  }
  return out;  // the order is compatible with products
}
Poly multiply(const Poly& a, const Poly& b) {
  Poly out;
  for (const Term& t : b) out = add(out, times_term(a, t), 1);
  return out;
}
/// x / y when y divides x.
bool divide_term(const Term& x, const Term& y, Term* out) {
  if (x.factor % y.factor != 0) return false;
  if (!std::includes(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end())) return false;
  out->factor = x.factor / y.factor;
  out->atoms.clear();
  std::set_difference(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end(),
                      std::back_inserter(out->atoms));
  return true;
}
/// p = q * out + rest. If q has one term, the terms it divides are removed; else all or nothing.
void divide(const Poly& p, const Poly& q, Poly* out, Poly* rest) {
  out->clear();
  *rest = p;
  Term t;
  if (q.size() == 1) {
    rest->clear();
    for (const Term& x : p) {
      if (divide_term(x, q[0], &t))
        out->push_back(t);
      else
        rest->push_back(x);
    }
    return;
  }
  while (!rest->empty()) {
    if (!divide_term((*rest)[0], q[0], &t)) {
      out->clear();
      *rest = p;
      return;
    }
    *out = add(*out, {t}, 1);
    *rest = add(*rest, times_term(q, t), -1);
  }
}

/// Every expression and atom of the process. Callers hold `mutex`.
class DimTable {
 public:
  static DimTable& get() {
    static DimTable* t = new DimTable;  // never destroyed: a global tensor may hold a Dim
    return *t;
  }
  std::mutex mutex;

  Dim symbol(const std::string& name) { return intern({{{atom({'s', name, {}})}, 1}}); }

  Poly poly(Dim d) const { return d.is_symbolic() ? polys_[index(d)] : number(d.raw()); }

  Dim combine(char op, Dim a, Dim b) {
    const Poly x = poly(a), y = poly(b);
    switch (op) {
      case '+':
        return intern(add(x, y, 1));
      case '-':
        return intern(add(x, y, -1));
      case '*':
        return intern(multiply(x, y));
      case '/':
        return floordiv(x, y);
      case '%':
        return mod(x, y);
      default:
        return extremum(op, a, b);
    }
  }

  std::string to_string(Dim d) const {
    if (!d.is_symbolic()) return std::to_string(d.raw());
    std::string text;
    for (const Term& t : polys_[index(d)]) {
      const bool minus = t.factor < 0;
      if (text.empty())
        text += minus ? "-" : "";
      else
        text += minus ? " - " : " + ";
      const std::string size = std::to_string(t.factor).substr(minus ? 1 : 0);
      if (size != "1" || t.atoms.empty()) text += size;
      for (size_t i = 0; i < t.atoms.size(); ++i) {
        if (i > 0 || size != "1") text += "*";
        text += atom_text(t.atoms[i]);
      }
    }
    return text;
  }

  std::vector<DimTerm> terms(Dim d) const {
    std::vector<DimTerm> out;
    for (const Term& t : poly(d)) {
      out.push_back({t.factor, {}});
      for (int id : t.atoms) {
        const Atom& a = atoms_[static_cast<size_t>(id)];
        out.back().atoms.push_back({a.kind, a.name, a.args});
      }
    }
    if (out.empty()) out.push_back({0, {}});
    return out;
  }

  int64_t evaluate(Dim d, const std::vector<std::pair<Dim, int64_t>>& symbols) const {
    if (!d.is_symbolic()) return d.raw();
    for (const auto& [symbol, value] : symbols)
      if (symbol == d) return value;
    int64_t sum = 0;
    for (const Term& t : polys_[index(d)]) {
      int64_t product = t.factor;
      for (int id : t.atoms) product = checked_mul(product, evaluate_atom(id, symbols));
      sum = checked_add(sum, product);
    }
    return sum;
  }

  /// True when a - b can never be 0.
  bool never_equal(Dim a, Dim b) const {
    const Poly diff = add(poly(a), poly(b), -1);
    if (is_number(diff)) return !diff.empty();
    int64_t common = 0;
    for (const Term& t : diff)
      if (!t.atoms.empty()) common = std::gcd(common, t.factor);
    return constant_of(diff) % common != 0;
  }

 private:
  static size_t index(Dim d) { return static_cast<size_t>(kFirst - d.raw()); }

  int atom(Atom a) {
    std::vector<int64_t> key;
    for (Dim d : a.args) key.push_back(d.raw());
    auto [at, fresh] =
        atom_ids_.try_emplace({a.kind, a.name, key}, static_cast<int>(atoms_.size()));
    if (fresh) atoms_.push_back(std::move(a));
    return at->second;
  }

  Dim intern(Poly p) {
    if (is_number(p)) return constant_of(p);
    std::vector<int64_t> key;
    for (const Term& t : p) {
      key.push_back(t.factor);
      key.push_back(static_cast<int64_t>(t.atoms.size()));
      key.insert(key.end(), t.atoms.begin(), t.atoms.end());
    }
    auto [at, fresh] = poly_ids_.try_emplace(std::move(key), polys_.size());
    if (fresh) polys_.push_back(std::move(p));
    return Dim::from_raw(kFirst - static_cast<int64_t>(at->second));
  }
  Dim intern_atom(char kind, std::vector<Dim> args) {
    return intern({{{atom({kind, "", std::move(args)})}, 1}});
  }

  static void check_divisor(const Poly& q, const char* what) {
    TD_CHECK(!is_number(q) || constant_of(q) > 0, Value, "{}: the divisor must be positive, got {}",
             what, constant_of(q));
  }

  Dim floordiv(const Poly& p, const Poly& q) {
    check_divisor(q, "floordiv");
    Poly whole, rest;
    divide(p, q, &whole, &rest);
    if (!is_number(q)) {
      if (rest.empty()) return intern(whole);
      const Dim part = intern_atom('/', {intern(rest), intern(q)});
      return intern(add(whole, poly(part), 1));
    }
    // The constant leaves a remainder in 0..k-1, then a common factor of all other terms is
    // cancelled: floor((g*A + c) / (g*k)) = floor((A + floor(c/g)) / k).
    int64_t k = constant_of(q);
    const int64_t c = constant_of(rest);
    whole = add(whole, number(floor_div(c, k)), 1);
    rest = add(rest, number(checked_add(floor_mod(c, k), -c)), 1);
    int64_t g = k;
    for (const Term& t : rest)
      if (!t.atoms.empty()) g = std::gcd(g, t.factor);
    if (g > 1) {
      Poly small;
      for (Term t : rest) {
        t.factor = floor_div(t.factor, g);
        if (t.factor != 0) small.push_back(std::move(t));
      }
      rest = std::move(small);
      k /= g;
    }
    if (is_number(rest)) return intern(add(whole, number(floor_div(constant_of(rest), k)), 1));
    return intern(add(whole, nested_floordiv(rest, k), 1));
  }

  /// floor((floor(x/b) + m) / k) = floor((x + m*b) / (b*k)), else a new atom.
  Poly nested_floordiv(const Poly& rest, int64_t k) {
    if (rest[0].factor == 1 && rest[0].atoms.size() == 1 &&
        (rest.size() == 1 || (rest.size() == 2 && rest[1].atoms.empty()))) {
      const Atom& inner = atoms_[static_cast<size_t>(rest[0].atoms[0])];
      if (inner.kind == '/' && !inner.args[1].is_symbolic()) {
        const int64_t b = inner.args[1].raw();
        const Poly shift = number(checked_mul(constant_of(rest), b));
        return poly(floordiv(add(poly(inner.args[0]), shift, 1), number(checked_mul(b, k))));
      }
    }
    return poly(intern_atom('/', {intern(rest), k}));
  }

  Dim mod(const Poly& p, const Poly& q) {
    check_divisor(q, "mod");
    Poly whole, rest;
    divide(p, q, &whole, &rest);
    if (is_number(q)) {
      const int64_t k = constant_of(q);
      Poly reduced;  // factors and constant in 0..k-1
      for (Term t : rest) {
        t.factor = floor_mod(t.factor, k);
        if (t.factor != 0) reduced.push_back(std::move(t));
      }
      rest = std::move(reduced);
    }
    if (rest.empty()) return 0;
    if (is_number(rest) && is_number(q)) return intern(rest);
    return intern_atom('%', {intern(rest), intern(q)});
  }

  /// min or max: flat, sorted, without repeats; of two that differ by a constant only one is kept.
  Dim extremum(char op, Dim a, Dim b) {
    std::vector<Dim> all;
    flatten(op, a, &all);
    flatten(op, b, &all);
    std::vector<Dim> keep;
    for (Dim d : all) {
      bool needed = true;
      for (Dim& k : keep) {
        const Poly diff = add(poly(d), poly(k), -1);
        if (!is_number(diff)) continue;
        if ((op == '<') == (constant_of(diff) < 0)) k = d;
        needed = false;
        break;
      }
      if (needed) keep.push_back(d);
    }
    if (keep.size() == 1) return keep[0];
    std::sort(keep.begin(), keep.end(), [](Dim x, Dim y) { return x.raw() > y.raw(); });
    return intern_atom(op, std::move(keep));
  }
  void flatten(char op, Dim d, std::vector<Dim>* out) const {
    if (d.is_symbolic()) {
      const Poly& p = polys_[index(d)];
      if (p.size() == 1 && p[0].factor == 1 && p[0].atoms.size() == 1) {
        const Atom& a = atoms_[static_cast<size_t>(p[0].atoms[0])];
        if (a.kind == op) {
          out->insert(out->end(), a.args.begin(), a.args.end());
          return;
        }
      }
    }
    out->push_back(d);
  }

  std::string atom_text(int id) const {
    const Atom& a = atoms_[static_cast<size_t>(id)];
    if (a.kind == 's') return a.name;
    if (a.kind == '/' || a.kind == '%') {
      auto wrapped = [&](Dim d, const char* when) {
        const std::string s = to_string(d);
        return s.find_first_of(when) == std::string::npos ? s : "(" + s + ")";
      };
      return "(" + wrapped(a.args[0], " ") + (a.kind == '/' ? "//" : " % ") +
             wrapped(a.args[1], " *") + ")";
    }
    std::string text = a.kind == '<' ? "min(" : "max(";
    for (size_t i = 0; i < a.args.size(); ++i) text += (i > 0 ? ", " : "") + to_string(a.args[i]);
    return text + ")";
  }

  int64_t evaluate_atom(int id, const std::vector<std::pair<Dim, int64_t>>& symbols) const {
    const Atom& a = atoms_[static_cast<size_t>(id)];
    if (a.kind == 's') {
      auto key = poly_ids_.find({1, 1, id});
      if (key != poly_ids_.end()) {
        const Dim d = Dim::from_raw(kFirst - static_cast<int64_t>(key->second));
        for (const auto& [symbol, value] : symbols)
          if (symbol == d) return value;
      }
      TD_FAIL(Shape, "the size '{}' has no value here", a.name);
    }
    int64_t v = evaluate(a.args[0], symbols);
    for (size_t i = 1; i < a.args.size(); ++i) {
      const int64_t w = evaluate(a.args[i], symbols);
      if (a.kind == '<' || a.kind == '>') {
        v = a.kind == '<' ? std::min(v, w) : std::max(v, w);
        continue;
      }
      TD_CHECK(w > 0, Value, "{}: the divisor must be positive, got {}",
               a.kind == '/' ? "floordiv" : "mod", w);
      v = a.kind == '/' ? floor_div(v, w) : floor_mod(v, w);
    }
    return v;
  }

  static constexpr int64_t kFirst = -(int64_t{1} << 62) - 1;  // raw of expression 0, then down
  struct AtomKey {
    char kind;
    std::string name;
    std::vector<int64_t> args;
    bool operator<(const AtomKey& o) const {
      if (kind != o.kind) return kind < o.kind;
      if (name != o.name) return name < o.name;
      return args < o.args;
    }
  };
  std::deque<Poly> polys_;
  std::deque<Atom> atoms_;
  std::map<std::vector<int64_t>, size_t> poly_ids_;
  std::map<AtomKey, int> atom_ids_;
};

}  // namespace

Dim Dim::symbol(const std::string& name) {
  TD_CHECK(!name.empty(), Value, "a symbolic size needs a name");
  DimTable& t = DimTable::get();
  std::lock_guard lock(t.mutex);
  return t.symbol(name);
}

Dim Dim::combine(char op, Dim a, Dim b) {
  if (both(a, b)) {
    switch (op) {
      case '/':
        return floor_div(a.v_, b.v_);
      case '%':
        return floor_mod(a.v_, b.v_);
      case '<':
        return std::min(a.v_, b.v_);
      case '>':
        return std::max(a.v_, b.v_);
    }
  }
  DimTable& t = DimTable::get();
  std::lock_guard lock(t.mutex);
  return t.combine(op, a, b);
}

void Dim::throw_no_size(int64_t v, bool negative) {
  if (negative) TD_FAIL(Value, "{} is neither a size nor a position: the least number is -2^62", v);
  TD_FAIL(Value, "{} is neither a size nor a position: the largest number is 2^63 - 1",
          static_cast<uint64_t>(v));
}

int64_t Dim::throw_symbolic() const {
  TD_FAIL(Shape,
          "the size {} is not a number inside a trace\nUse shape(d), which gives a Dim to compute "
          "with.",
          to_string());
}

std::string Dim::to_string() const {
  if (!is_symbolic()) return std::to_string(v_);
  DimTable& t = DimTable::get();
  std::lock_guard lock(t.mutex);
  return t.to_string(*this);
}

int64_t Dim::evaluate(const std::vector<std::pair<Dim, int64_t>>& symbols) const {
  if (!is_symbolic()) return v_;
  DimTable& t = DimTable::get();
  std::lock_guard lock(t.mutex);
  return t.evaluate(*this, symbols);
}

std::vector<DimTerm> terms_of(Dim d) {
  DimTable& t = DimTable::get();
  std::lock_guard lock(t.mutex);
  return t.terms(d);
}

DimChecks*& current_dim_checks() {
  static thread_local DimChecks* checks = nullptr;
  return checks;
}

bool dims_equal(Dim a, Dim b) {
  if (a == b) return true;
  if (!a.is_symbolic() && !b.is_symbolic()) return false;
  {
    DimTable& t = DimTable::get();
    std::lock_guard lock(t.mutex);
    if (t.never_equal(a, b)) return false;
  }
  DimChecks* checks = current_dim_checks();
  if (checks == nullptr) return false;
  checks->equal.emplace_back(a, b);
  return true;
}

}  // namespace tandem
