// SPDX-License-Identifier: Apache-2.0
// Calls of all op rows, for tests and benchmarks: inputs from a row's domains, the call itself, and
// the rows of elementwise ops, which the op table itself provides.
#pragma once

#include <cmath>
#include <cstring>
#include <set>

#include "tandem/graph/trace.h"
#include "tests/ops/row_table.h"

namespace tandem::rows {

inline constexpr uint64_t kSeed = 7;

// ---- inputs

inline double value_at(const std::string& domain, int64_t i, int salt) {
  double s = std::sin(1.37 * static_cast<double>(i) + 0.61 * salt + 0.2);  // no ties, no kinks at 0
  double u = 0.5 * (s + 1);
  size_t colon = domain.find(':');
  if (colon != std::string::npos) {
    auto k = std::stoll(domain.substr(colon + 1));
    if (domain[0] == 'p') return static_cast<double>((i * (k - 1) + salt) % k);
    return std::floor(u * 0.999 * static_cast<double>(k));
  }
  if (domain == "pos") return 0.3 + 2 * u;
  if (domain == "unit") return 0.85 * s;
  if (domain == "prob") return 0.05 + 0.9 * u;
  if (domain == "holes") return i % 3 == 1 ? 0 : 2 * s + 0.05;
  if (domain == "gt1") return 1.2 + 2 * u;
  if (domain == "bool") return s > 0;
  if (domain == "ints") return std::floor(7.9 * s);
  if (domain == "posint") return 1 + std::floor(6.9 * u);
  return 2 * s + 0.05;
}

inline DType dtype_for(const std::string& domain, DType floating) {
  if (domain == "bool") return DType::b8;
  if (domain.rfind("i32:", 0) == 0) return DType::i32;
  bool integer = domain.find(':') != std::string::npos || domain == "ints" || domain == "posint";
  return integer || domain[0] == '#' ? DType::i64 : floating;
}

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(text.empty() ? 0 : 1);
  for (char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

inline Shape shape_of(const std::string& text, int64_t n) {
  Shape s;
  if (text == ".") return s;
  for (const std::string& part : split(text, ',')) s.push_back(part == "n" ? n : std::stoll(part));
  return s;
}

// Matrices that every solver accepts.
inline Tensor special_matrix(const Tensor& t, const std::string& domain) {
  if (domain == "regular") return t * 0.3 + eye(t.size(-2), t.size(-1), float64) * 2.0;
  if (domain == "spd") return matmul(t, t.transpose(-2, -1)) * 0.2 + eye(t.size(-1), -1, float64);
  return t;
}

struct Arg {
  Tensor tensor;
  Scalar scalar;
  bool is_scalar = false;
};

inline Scalar number(const std::string& domain) {
  if (domain[0] == '#') return Scalar(std::stoll(domain.substr(1)));
  return Scalar(std::stod(domain.substr(1)));
}

inline std::vector<Arg> make_args(const Row& row, int64_t n, DType floating, int salt = 0) {
  std::vector<Arg> args;
  int k = 0;
  for (const std::string& text : split(row.in, '|')) {
    std::vector<std::string> part = split(text, ' ');
    Arg a;
    if (text[0] == '=' || text[0] == '#') {
      a.is_scalar = true;
      a.scalar = number(text);
    } else if (text != "-") {
      Shape s = shape_of(part[0], n);
      std::string domain = part.size() > 1 ? part[1] : "any";
      if (domain == "int:n") domain = "int:" + std::to_string(n);
      bool fixed = domain[0] == '=' || domain[0] == '#';
      std::vector<double> v(static_cast<size_t>(s.numel().value()));
      for (size_t i = 0; i < v.size(); ++i)
        v[i] = fixed ? number(domain).to_double()
                     : value_at(domain, static_cast<int64_t>(i), k + salt);
      a.tensor = special_matrix(tensor(v).reshape(s), domain).to(dtype_for(domain, floating));
    }
    args.push_back(a);
    ++k;
  }
  return args;
}

// The row's outputs; with `hidden` also those that only a derivative sees. `spend` passes the op
// temporaries whose buffers it may reuse.
inline std::vector<Tensor> call_row(const Row& row, const std::vector<Arg>& args, int64_t n,
                                    bool hidden = false, bool spend = false) {
  const OpDef* op = find_op(row.op);
  AttrsHolder attrs = row.attrs(n);
  std::vector<Operand> in;
  in.reserve(args.size());
  for (const Arg& a : args) {
    if (a.is_scalar)
      in.emplace_back(a.scalar);
    else if (spend && a.tensor.defined())
      in.emplace_back(a.tensor.clone());
    else
      in.emplace_back(a.tensor);
  }
  if (op->has(kRandom) && !is_tracing()) manual_seed(kSeed);
  Tensor out[kMaxOpOuts];
  ApplyOptions options;
  options.hidden = hidden;
  apply(*op, attrs.get(), in, out, SourceLocation::here(), options);
  return std::vector<Tensor>(out, out + (hidden ? op->n_out : op->shown()));
}

inline std::vector<Tensor> tensors_of(const std::vector<Arg>& args) {
  std::vector<Tensor> t;
  for (const Arg& a : args)
    if (a.tensor.defined()) t.push_back(a.tensor);
  return t;
}

// The same call with its tensors replaced.
inline std::vector<Arg> with_tensors(std::vector<Arg> args, std::span<const Tensor> t) {
  size_t k = 0;
  for (Arg& a : args)
    if (a.tensor.defined()) a.tensor = t[k++];
  return args;
}

inline std::vector<Arg> cast_floating(std::vector<Arg> args, DType to) {
  for (Arg& a : args)
    if (a.tensor.defined() && is_floating(a.tensor.dtype())) a.tensor = a.tensor.to(to);
  return args;
}

inline bool any_floating(const std::vector<Arg>& args) {
  for (const Arg& a : args)
    if (a.tensor.defined() && is_floating(a.tensor.dtype())) return true;
  return false;
}

// The same values with other strides: transposed storage, or every second element.
inline Tensor odd_strides(const Tensor& t, int kind) {
  if (t.dim() == 0) return t;
  if (kind == 0 && t.dim() >= 2) return t.transpose(0, -1).contiguous().transpose(0, -1);
  Tensor wide = cat({t.unsqueeze(-1), t.unsqueeze(-1)}, -1).flatten(-2, -1);
  return wide.slice(-1, 0, wide.size(-1), 2);
}

// ---- the table, with the elementwise rows generated from the op table

// Where an elementwise op is undefined, or has no derivative, for numbers of both signs.
inline std::string pointwise_domain(const std::string& op, int input) {
  static const std::vector<std::pair<std::string, std::string>> kDomains = {
      {"log", "pos"},     {"log2", "pos"},     {"log10", "pos"},    {"log1p", "pos"},
      {"sqrt", "pos"},    {"rsqrt", "pos"},    {"asin", "unit"},    {"acos", "unit"},
      {"atanh", "unit"},  {"erfinv", "unit"},  {"acosh", "gt1"},    {"logit", "prob"},
      {"lgamma", "pos"},  {"digamma", "pos"},  {"pow", "pos"},      {"xlogy", "pos"},
      {"xlog1py", "pos"}, {"entr", "pos"},     {"ndtri", "prob"},   {"polygamma", "pos"},
      {"zeta", "gt1"},    {"gammainc", "pos"}, {"gammaincc", "pos"}};
  for (const auto& [name, domain] : kDomains)
    if (name == op) return domain;
  const OpDef& row = *find_op(op);
  if (row.types == Types::bits)
    return op.find("shift") != std::string::npos && input == 1 ? "posint" : "ints";
  std::string in = row.in_names[input];
  // Moments of squares: at least the square of the mean, which is small.
  for (const char* square : {"v", "vmax", "square", "sum", "delta", "u"})
    if (in == square && row.n_out > 1) return "gt1";
  if (in == "mean" && row.n_out > 1) return "unit";
  return "any";
}

inline std::string number_named(const std::string& name) {
  if (name == "n$") return "2";
  if (name.rfind("min", 0) == 0) return "-0.6";
  return name.rfind("max", 0) == 0 ? "1.3" : "0.7";
}

// Variants: a vector to broadcast and numbers; numbers as 0-d tensors, the second operand a number;
// the first operand a number; the second a 0-d tensor.
inline Row pointwise_row(const OpDef& op, int variant) {
  Row r;
  r.op = op.name;
  if (variant > 1 && op.n_out > 1) variant = 0;
  if (r.op.find("_update") != std::string::npos && variant > 1) variant = 0;
  bool two = op.n_in >= 2 && op.in_names[1][std::strlen(op.in_names[1]) - 1] != '$';
  for (int i = 0; i < op.n_in; ++i) {
    if (i) r.in += "|";
    std::string name = op.in_names[i], domain = " " + pointwise_domain(r.op, i);
    bool bits = op.types == Types::bits;
    if (op.types == Types::where && i == 0)
      r.in += "n,3 bool";
    else if (name.back() == '$')
      r.in += (variant == 1 ? ". =" : "=") + number_named(name);
    else if (r.op.find("_update") != std::string::npos)
      r.in += "n,3" + domain;
    else if (two && variant == 1 && i == 1 && op.n_out == 1)
      r.in += bits ? "#3" : "=0.7";
    else if (two && variant == 2 && i == 0 && op.types != Types::where)
      r.in += bits ? "#3" : r.op == "zeta" ? "=1.7" : "=0.7";
    else if (i == 1 && op.n_out == 1)
      r.in += (variant == 3 ? "." : "3") + domain;
    else
      r.in += "n,3" + domain;
  }
  if (r.op == "cast") r.attrs = with(CastAttrs{DType::f64});
  if (r.op == "round_decimals" && variant == 1)
    r.off |= kLastConstant, r.why = "decimals are a whole number by nature";
  if (r.op == "polygamma" && variant == 1)
    r.off |= kLastConstant, r.why = "the order is a whole number by nature";
  for (const char* first : {"zeta", "gammainc", "gammaincc"})
    if (r.op == first) r.off |= kFirstConstant, r.why = "no derivative by the first, as in PyTorch";
  return r;
}

inline std::vector<Row> all_rows() {
  std::vector<Row> rows = table();
  for (const OpDef* op : all_ops()) {
    if (op->family != Family::pointwise) continue;
    std::set<std::string> seen;
    for (int variant = 0; variant < 4; ++variant) {
      Row r = pointwise_row(*op, variant);
      if (seen.insert(r.in).second) rows.push_back(r);
    }
  }
  return rows;
}

/// A number that depends on every floating output.
inline Tensor total_of(const std::vector<Tensor>& y) {
  Tensor total;
  for (const Tensor& t : y) {
    if (!t.defined() || !is_floating(t.dtype())) continue;
    Tensor part = (t * t * 0.3 + t * 0.7).sum().to(DType::f32);
    total = total.defined() ? total + part : part;
  }
  return total;
}

}  // namespace tandem::rows
