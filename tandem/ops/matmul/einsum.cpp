// SPDX-License-Identifier: Apache-2.0
// tensordot and einsum: dimensions are sorted into batch, kept and summed ones, then one matmul per
// pair of operands computes the result. Operands are processed from left to right.
#include <cctype>
#include <string>

#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::placed;
using detail::product;

// A label is its character; dimension k of the ellipsis, counted from the right, is kEllipsis + k.
constexpr int kEllipsis = 256;
using Labels = std::vector<int>;

struct Term {
  Tensor t;
  Labels labels;
};

struct Equation {
  std::vector<std::string> in;
  std::string out;
  bool has_out = false;
};

std::string without_spaces(std::string_view s) {
  std::string r;
  for (char c : s)
    if (c != ' ') r += c;
  return r;
}

Equation parse(std::string_view text, size_t operands) {
  std::string s = without_spaces(text);
  Equation e;
  size_t arrow = s.find("->");
  e.has_out = arrow != std::string::npos;
  if (e.has_out) e.out = s.substr(arrow + 2);
  std::string left = s.substr(0, arrow);
  size_t at = 0;
  for (;;) {
    size_t comma = left.find(',', at);
    e.in.push_back(left.substr(at, comma - at));
    if (comma == std::string::npos) break;
    at = comma + 1;
  }
  TD_CHECK(e.in.size() == operands, Value, "equation \"{}\" names {} operands, {} are given", text,
           e.in.size(), operands);
  return e;
}

// The labels of one term for a tensor of `rank` dimensions (rank < 0: the ellipsis has `ellipsis`).
Labels labels_of(const std::string& term, int rank, int ellipsis, std::string_view text) {
  size_t dots = term.find("...");
  std::string letters = term;
  if (dots != std::string::npos) letters.erase(dots, 3);
  for (char c : letters)
    TD_CHECK(std::isalpha(static_cast<unsigned char>(c)), Value,
             "'{}' in equation \"{}\" is not a letter", c, text);
  int named = static_cast<int>(letters.size());
  if (rank >= 0) {
    bool fits = dots == std::string::npos ? named == rank : named <= rank;
    TD_CHECK(fits, Shape, "term \"{}\" of equation \"{}\" does not fit a tensor of {} dimensions",
             term, text, rank);
    ellipsis = dots == std::string::npos ? 0 : rank - named;
  }
  Labels r;
  for (size_t i = 0; i <= letters.size(); ++i) {
    if (i == dots)
      for (int k = ellipsis; k-- > 0;) r.push_back(kEllipsis + k);
    if (i < letters.size()) r.push_back(static_cast<unsigned char>(letters[i]));
  }
  return r;
}

bool contains(const Labels& l, int label) {
  return std::find(l.begin(), l.end(), label) != l.end();
}
int position(const Labels& l, int label) {
  return static_cast<int>(std::find(l.begin(), l.end(), label) - l.begin());
}

// A letter that is repeated within one operand selects its diagonal.
void take_diagonals(Term& x, SourceLocation loc) {
  for (size_t i = 0; i < x.labels.size(); ++i)
    for (size_t k = i + 1; k < x.labels.size(); ++k) {
      if (x.labels[i] != x.labels[k]) continue;
      int label = x.labels[i];
      auto a = static_cast<int64_t>(i), b = static_cast<int64_t>(k);
      TD_CHECK(dims_equal(x.t.shape(a), x.t.shape(b)), Shape,
               "operand {} has sizes {} and {} for one letter", x.t.shape().to_string(),
               x.t.shape(a).to_string(), x.t.shape(b).to_string());
      x.t = diagonal(x.t, 0, a, b, loc);
      x.labels.erase(x.labels.begin() + static_cast<long>(k));
      x.labels.erase(x.labels.begin() + static_cast<long>(i));
      x.labels.push_back(label);
      return take_diagonals(x, loc);
    }
}

// Sums over the dimensions of labels for which `keep` is false.
template <class F>
void sum_out(Term& x, F keep, SourceLocation loc) {
  IntList dims;
  Labels left;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (keep(x.labels[i]))
      left.push_back(x.labels[i]);
    else
      dims.push_back(static_cast<int64_t>(i));
  }
  if (dims.empty()) return;
  x.t = x.t.sum(dims, false, loc);
  x.labels = left;
}

Tensor arranged(const Term& x, const Labels& order, SourceLocation loc) {
  IntList dims;
  for (int label : order) dims.push_back(position(x.labels, label));
  return dims.empty() ? x.t : x.t.permute(dims, loc);
}

// The size of a label: that of the operand in which it is not 1.
Dim size_of_label(const Term& a, const Term& b, int label) {
  bool in_a = contains(a.labels, label), in_b = contains(b.labels, label);
  Dim x = in_a ? a.t.shape(position(a.labels, label)) : Dim(1);
  Dim y = in_b ? b.t.shape(position(b.labels, label)) : Dim(1);
  if (x == Dim(1)) return y;
  TD_CHECK(y == Dim(1) || dims_equal(x, y), Shape,
           "operands {} and {} have sizes {} and {} for one letter", a.t.shape().to_string(),
           b.t.shape().to_string(), x.to_string(), y.to_string());
  return x;
}

// x with dimensions `order`, those of size 1 expanded to `sizes`, merged into [batch, rows, cols].
Tensor as_matrices(const Term& x, const Labels& batch, const Labels& rows, const Labels& cols,
                   const std::vector<Dim>& sizes, SourceLocation loc) {
  Labels order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), cols.begin(), cols.end());
  Shape full;
  for (Dim d : sizes) full.push_back(d);
  Tensor t = arranged(x, order, loc).expand(full, loc);
  int nb = static_cast<int>(batch.size()), nr = nb + static_cast<int>(rows.size());
  return t.reshape({product(full, 0, nb), product(full, nb, nr), product(full, nr, full.rank())},
                   loc);
}

// Product of two terms; labels for which `keep` is false are summed.
template <class F>
Term contract(Term a, Term b, F keep, SourceLocation loc) {
  sum_out(
      a, [&](int l) { return contains(b.labels, l) || keep(l); }, loc);
  sum_out(
      b, [&](int l) { return contains(a.labels, l) || keep(l); }, loc);
  Labels batch, rows, cols, inner;
  for (int l : a.labels) (!contains(b.labels, l) ? rows : keep(l) ? batch : inner).push_back(l);
  for (int l : b.labels)
    if (!contains(a.labels, l)) cols.push_back(l);
  auto sizes = [&](std::initializer_list<const Labels*> groups) {
    std::vector<Dim> r;
    for (const Labels* g : groups)
      for (int l : *g) r.push_back(size_of_label(a, b, l));
    return r;
  };
  Tensor x = as_matrices(a, batch, rows, inner, sizes({&batch, &rows, &inner}), loc);
  Tensor y = as_matrices(b, batch, inner, cols, sizes({&batch, &inner, &cols}), loc);
  Term r;
  Shape out;
  for (Dim d : sizes({&batch, &rows, &cols})) out.push_back(d);
  r.t = matmul(std::move(x), std::move(y), MatmulAttrs(), loc).reshape(out, loc);
  for (const Labels* g : {&batch, &rows, &cols})
    r.labels.insert(r.labels.end(), g->begin(), g->end());
  return r;
}

// Without "->": the ellipsis first, then the letters that occur once, in alphabetical order.
Labels implied_output(const std::vector<Term>& terms) {
  std::vector<int> count(kEllipsis, 0);
  int ellipsis = 0;
  for (const Term& x : terms)
    for (int l : x.labels) {
      if (l < kEllipsis)
        ++count[static_cast<size_t>(l)];
      else
        ellipsis = std::max(ellipsis, l - kEllipsis + 1);
    }
  Labels r;
  for (int k = ellipsis; k-- > 0;) r.push_back(kEllipsis + k);
  for (int l = 0; l < kEllipsis; ++l)
    if (count[static_cast<size_t>(l)] == 1) r.push_back(l);
  return r;
}

Labels output_labels(const Equation& e, const std::vector<Term>& terms, std::string_view text) {
  if (!e.has_out) return implied_output(terms);
  int ellipsis = 0;
  for (const Term& x : terms)
    for (int l : x.labels) ellipsis = std::max(ellipsis, l - kEllipsis + 1);
  Labels r = labels_of(e.out, -1, ellipsis, text);
  for (size_t i = 0; i < r.size(); ++i) {
    bool known = false;
    for (const Term& x : terms) known |= contains(x.labels, r[i]);
    TD_CHECK(known, Value, "equation \"{}\" has an output letter that no operand has", text);
    TD_CHECK(position(r, r[i]) == static_cast<int>(i), Value,
             "equation \"{}\" has an output letter twice", text);
  }
  return r;
}

Tensor run_einsum(std::string_view text, std::span<const Tensor> operands, SourceLocation loc) {
  TD_CHECK(!operands.empty(), Value, "einsum expects at least one operand");
  Equation e = parse(text, operands.size());
  std::vector<Term> terms;
  for (size_t i = 0; i < operands.size(); ++i)
    terms.push_back({operands[i], labels_of(e.in[i], operands[i].dim(), 0, text)});
  Labels out = output_labels(e, terms, text);
  for (Term& x : terms) take_diagonals(x, loc);
  Term acc = std::move(terms[0]);
  for (size_t i = 1; i < terms.size(); ++i) {
    auto wanted = [&](int l) {
      bool later = contains(out, l);
      for (size_t k = i + 1; k < terms.size(); ++k) later |= contains(terms[k].labels, l);
      return later;
    };
    acc = contract(std::move(acc), std::move(terms[i]), wanted, loc);
  }
  sum_out(
      acc, [&](int l) { return contains(out, l); }, loc);
  return arranged(acc, out, loc);
}

}  // namespace

Tensor tensordot(Tensor a, Tensor b, IntList dims_a, IntList dims_b, SourceLocation loc) {
  return placed("tensordot", loc, [&] {
    TD_CHECK(dims_a.rank() == dims_b.rank(), Value, "dims {} and {} are not pairs",
             dims_a.to_string(), dims_b.to_string());
    // Labels of a are 'A' + dimension; a summed dimension of b gets its partner's.
    Term x{a, {}}, y{b, {}};
    Labels out;
    for (int i = 0; i < a.dim(); ++i) x.labels.push_back('A' + i);
    for (int i = 0; i < b.dim(); ++i) y.labels.push_back('a' + i);
    Labels left = x.labels;
    for (int i = 0; i < dims_a.rank(); ++i) {
      auto p = static_cast<size_t>(normalize_dim(dims_a[i].value(), a.dim()));
      auto q = static_cast<size_t>(normalize_dim(dims_b[i].value(), b.dim()));
      TD_CHECK(left[p] && y.labels[q] >= 'a', Value, "a dimension appears twice in {} or {}",
               dims_a.to_string(), dims_b.to_string());
      y.labels[q] = x.labels[p];
      left[p] = 0;
    }
    for (int l : left)
      if (l) out.push_back(l);
    for (int l : y.labels)
      if (l >= 'a') out.push_back(l);
    Term r = contract(
        x, y, [&](int l) { return contains(out, l); }, loc);
    return arranged(r, out, loc);
  });
}

Tensor tensordot(Tensor a, Tensor b, int64_t dims, SourceLocation loc) {
  IntList last, first;
  placed("tensordot", loc, [&] {
    TD_CHECK(dims >= 0 && dims <= a.dim() && dims <= b.dim(), Value, "dims is {}, a is {}, b is {}",
             dims, a.shape().to_string(), b.shape().to_string());
  });
  for (int64_t i = 0; i < dims; ++i) {
    last.push_back(a.dim() - dims + i);
    first.push_back(i);
  }
  return tensordot(std::move(a), std::move(b), last, first, loc);
}

Tensor einsum(std::string_view equation, std::span<const Tensor> operands, SourceLocation loc) {
  return placed("einsum", loc, [&] { return run_einsum(equation, operands, loc); });
}
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands,
              SourceLocation loc) {
  return einsum(equation, std::span<const Tensor>(operands.begin(), operands.size()), loc);
}

}  // namespace tandem
