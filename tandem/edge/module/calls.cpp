// SPDX-License-Identifier: Apache-2.0
// Which function of the public API calls a row, and with which arguments. Elementwise functions and
// reductions follow from the op table; a row whose function has another name or another order of
// arguments is a line here.
#include "tandem/edge/module/calls_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "tandem/base/fields.h"

namespace tandem::edge {
namespace {

// {name}: an input or an attribute; {name=default}: left out where it has that value and nothing
// follows. `fields`: of the struct that a function of several results returns.
struct CallForm {
  const char* row;
  const char* text;
  int level = CallText::call;
  const char* fields = "";
};
constexpr CallForm kCallForms[] = {
    {"add", "{a} + {b}", CallText::sum},
    {"sub", "{a} - {b}", CallText::sum},
    {"mul", "{a} * {b}", CallText::product},
    {"div", "{a} / {b}", CallText::product},
    {"remainder", "{a} % {b}", CallText::product},
    {"neg", "-{x}", CallText::unary},
    {"eq", "{a} == {b}", CallText::compare},
    {"ne", "{a} != {b}", CallText::compare},
    {"lt", "{a} < {b}", CallText::compare},
    {"le", "{a} <= {b}", CallText::compare},
    {"gt", "{a} > {b}", CallText::compare},
    {"ge", "{a} >= {b}", CallText::compare},
    {"floor_divide", "div({a}, {b}, \"floor\")"},
    {"trunc_divide", "div({a}, {b}, \"trunc\")"},
    {"pow", "pow({base}, {exponent})"},
    {"where", "where({condition}, {a}, {b})"},
    {"clamp", "clamp({x}, {min}, {max})"},
    {"clamp_min", "clamp_min({x}, {min})"},
    {"clamp_max", "clamp_max({x}, {max})"},
    {"clamp_tensor", "clamp({x}, {min}, {max})"},
    {"lerp", "lerp({start}, {end}, {weight})"},
    {"addcmul", "addcmul({x}, {a}, {b}, {value=1})"},
    {"addcdiv", "addcdiv({x}, {a}, {b}, {value=1})"},
    {"gelu", "gelu({x})"},
    {"gelu_tanh", "gelu({x}, \"tanh\")"},
    {"prelu", "prelu({x}, {weight})"},
    {"nan_to_num", "nan_to_num({x}, {nan}, {posinf}, {neginf})"},
    {"identity", "identity({x})"},
    {"count_nonzero", "count_nonzero({x}, {dims={}})"},
    {"max_dim", "max({x}, {dims}, {keepdim=false})", CallText::call, "values indices"},
    {"min_dim", "min({x}, {dims}, {keepdim=false})", CallText::call, "values indices"},
    {"argmax", "argmax({x}, {dims={}}, {keepdim=false})"},
    {"argmin", "argmin({x}, {dims={}}, {keepdim=false})"},
    {"norm", "norm({x}, 2, {dims={}}, {keepdim=false})"},
    {"var", "var({x}, {dims}, {correction=1}, {keepdim=false})"},
    {"softmax", "softmax({x}, {dim})"},
    {"log_softmax", "log_softmax({x}, {dim})"},
    {"linear", "linear({x}, {w}, {b=})"},
    {"cat", "cat({xs}, {dim=0})"},
    {"flip", "flip({x}, {dims})"},
    {"roll", "roll({x}, {shifts}, {dims={}})"},
    {"tril", "tril({x}, {diagonal=0})"},
    {"triu", "triu({x}, {diagonal=0})"},
    {"gather", "gather({x}, {dim}, {index})"},
    {"sort", "sort({x}, {dim=-1}, {descending=false})", CallText::call, "values indices"},
    {"topk", "topk({x}, {k}, {dim=-1}, {descending=true})", CallText::call, "values indices"},
    {"scatter", "scatter({x}, {dim}, {index}, {src})"},
    {"scatter_add", "scatter_add({x}, {dim}, {index}, {src})"},
    {"one_hot", "one_hot({x}, {num_classes})"},
    {"lstm", "lstm({x}, {h0}, {c0}, {w_ih}, {w_hh}, {b_ih={}}, {b_hh={}}, {reverse=false})",
     CallText::call, "y h c"},
    {"gru", "gru({x}, {h0}, {w_ih}, {w_hh}, {b_ih={}}, {b_hh={}}, {reverse=false})", CallText::call,
     "y h"},
    {"quantize_linear", "quantize_linear({x}, {scale}, {zero={}}, {axis=1}, {dtype=DType::u8})"},
    {"dequantize_linear", "dequantize_linear({codes}, {scale}, {zero={}}, {axis=1})"},
    {"dynamic_quantize_linear", "dynamic_quantize_linear({x})", CallText::call, "codes scale zero"},
    {"matmul_integer", "matmul_integer({x}, {w}, {x_zero={}}, {w_zero={}})"},
    {"diagonal", "diagonal({x}, {offset=0}, {dim1=0}, {dim2=1})"},
    {"unfold", "unfold({x}, {dim}, {size}, {step})"},
    {"im2col", "unfold({x}, {kernel}, {dilation}, {padding}, {stride})"},
    {"col2im", "fold({x}, {size}, {kernel}, {dilation}, {padding}, {stride})"},
    {"bitcast", "bitcast({x}, {dtype})"},
    {"cdist", "cdist({x1}, {x2})"},
    {"gcd", "gcd({a}, {b})"},
    {"nextafter", "nextafter({a}, {b})"},
    {"linear_scan", "linear_scan({a}, {b}, {dim}, {reverse=false})"},
    {"dynamic_slice", "dynamic_slice({x}, {dim}, {start}, {length})"},
    {"linspace", "linspace({start}, {end}, {steps}, {dtype=DType::f32})"},
    {"eye", "eye({n}, {m}, {dtype=DType::f32})"},
    {"cholesky", "linalg::cholesky({A}, {upper=false})"},
    {"solve_triangular", "linalg::solve_triangular({A}, {B}, {upper}, true, {unitriangular})"},
    {"inv", "linalg::inv({A})"},
    {"det", "linalg::det({A})"},
    {"slogdet", "linalg::slogdet({A})", CallText::call, "sign logabsdet"},
    {"lu_factor", "linalg::lu_factor({A})", CallText::call, "LU pivots"},
    {"svd", "linalg::svd({A}, {full_matrices=true})", CallText::call, "U S Vh"},
    {"matrix_exp", "linalg::matrix_exp({A})"},
};

// Elementwise functions of the row's name, with the defaults of their numbers.
const std::unordered_map<std::string_view, std::vector<double>>& elementwise() {
  static const std::unordered_map<std::string_view, std::vector<double>> all = {
#define PW1(name, ...) {#name, {}},
#define PW1G PW1
#define PW1N(name, types, n, value, ...) {#name, {value}},
#define PW1NG PW1N
#define PW1NNG(name, types, n, n_value, m, m_value, ...) {#name, {n_value, m_value}},
#define PW2 PW1
#define PW2G PW1
#define ROW(...)
#define ROWG(...)
#include "tandem/ops/pointwise/pointwise.def"
#undef PW1
#undef PW1G
#undef PW1N
#undef PW1NG
#undef PW1NNG
#undef PW2
#undef PW2G
#undef ROW
#undef ROWG
  };
  return all;
}

const std::unordered_map<std::string_view, CallForm>& call_forms() {
  static const auto* const all = [] {
    auto* t = new std::unordered_map<std::string_view, CallForm>;
    for (const CallForm& f : kCallForms) t->emplace(f.row, f);
    return t;
  }();
  return *all;
}

std::string input_name(const char* s) {
  std::string name = s;
  while (!name.empty() && (name.back() == '?' || name.back() == '*' || name.back() == '$'))
    name.pop_back();
  return name;
}

// The format of a row that the op table answers for; "" for others.
std::string form_of(const OpDef& op) {
  const auto at = elementwise().find(op.name);
  if (op.family == Family::pointwise && at != elementwise().end()) {
    std::string s = std::string(op.name) + "(";
    const size_t tensors = op.n_in - at->second.size();
    for (size_t i = 0; i < op.n_in; ++i) {
      s += (i ? ", {" : "{") + input_name(op.in_names[i]);
      if (i >= tensors) s += "=" + real(at->second[i - tensors]);
      s += "}";
    }
    return s + ")";
  }
  if (op.family == Family::reduce)
    return fmt::format("{}({{x}}, {{dims={{}}}}, {{keepdim=false}})", op.name);
  if (op.family == Family::scan && op.shown() == 1)
    return fmt::format("{}({{x}}, {{dim}})", op.name);
  return "";
}

// The text of one attribute.
class FieldText : public AttrVisitor {
 public:
  FieldText(const OpCall& c, std::string name) : c_(c), name_(std::move(name)) {}
  void operator()(const char* n, int64_t& v) override {
    if (name_ == n) found_ = number(v, name_ == "dim" ? "" : name_);
  }
  void operator()(const char* n, double& v) override {
    if (name_ == n) found_ = words(real(v));
  }
  void operator()(const char* n, bool& v) override {
    if (name_ == n) found_ = words(v ? "true" : "false");
  }
  void operator()(const char* n, DType& v) override {
    if (name_ == n) found_ = words(dtype_text(v));
  }
  void operator()(const char* n, std::string& v) override {
    if (name_ == n) found_ = words("\"" + v + "\"");
  }
  void operator()(const char* n, IntList& v) override {
    if (name_ == n) found_ = c_.list(v, name_ == "dims" ? "" : name_);
  }
  void operator()(const char* n, Scalar& v) override {
    if (name_ == n) found_ = words(v.kind == 2 ? real(v.f) : std::to_string(v.i));
  }
  void operator()(const char*, std::vector<int64_t>&) override {}
  void operator()(const char*, Ref<RefCounted>&) override {}
  std::optional<Text> find() {
    const AttrsHolder copy = c_.step().node->attrs;
    if (copy.get()) copy.type()->visit(const_cast<void*>(copy.get()), *this);
    return found_;
  }

 private:
  const OpCall& c_;
  std::string name_;
  std::optional<Text> found_;
};

std::string plain(const Text& t) {
  std::string s;
  for (const Piece& p : t) s += p.words;
  return s;
}

// Input or attribute `name` of the call.
std::optional<Text> argument(const OpCall& c, const std::string& name, int level) {
  const OpDef& op = c.op();
  for (size_t i = 0; i < op.n_in; ++i) {
    if (input_name(op.in_names[i]) != name) continue;
    if (op.variadic && i + 1 == op.n_in) {
      Text t = words("{");
      for (size_t k = i; k < c.step().in.size(); ++k) {
        if (k > i) append(t, ", ");
        append(t, c.in(k));
      }
      append(t, "}");
      return t;
    }
    if (c.has(i)) return c.in(i, level);
    return words(op.optional(static_cast<int>(i)) ? "{}" : "");
  }
  return FieldText(c, name).find();
}

struct Argument {
  Text text;
  bool may_go = false;  // it has its default
};

// One argument of a format, "{*stride=kernel}" or words.
std::optional<Argument> argument_of(const OpCall& c, std::string_view form, int level) {
  if (!form.starts_with('{')) return Argument{words(std::string(form))};
  std::string name(form.substr(1, form.size() - 2)), fallback = "\1";
  if (const size_t eq = name.find('='); eq != name.npos) {
    fallback = name.substr(eq + 1);
    name.resize(eq);
  }
  const std::optional<Text> text = argument(c, name, level);
  if (!text) return {};
  const std::string s = plain(*text);
  return Argument{*text, s == fallback || (fallback.empty() && s == "{}")};
}

// The parts of `s` between commas outside braces.
std::vector<std::string> comma_parts(std::string_view s) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    depth += (s[i] == '{') - (s[i] == '}');
    if (s[i] == ',' && depth == 0) {
      out.emplace_back();
      ++i;  // the space
    } else {
      out.back() += s[i];
    }
  }
  return out;
}

std::optional<CallText> call_by_form(const OpCall& c, std::string form) {
  const size_t open = form.find('(');
  const std::string name = form.substr(0, open);
  std::vector<Argument> all;
  for (const std::string& part : comma_parts(form.substr(open + 1, form.size() - open - 2))) {
    std::optional<Argument> a = argument_of(c, part, CallText::compare);
    if (!a) return {};
    all.push_back(std::move(*a));
  }
  while (all.size() > 1 && all.back().may_go) all.pop_back();
  Text t = words(name + "(");
  for (size_t i = 0; i < all.size(); ++i) {
    if (i) append(t, ", ");
    append(t, all[i].text);
  }
  append(t, ")");
  return CallText{t};
}

// "{a} + {b}": the right side of - and / is not of the same level.
std::optional<CallText> call_by_operator(const OpCall& c, const CallForm& f) {
  Text t;
  std::string_view rest = f.text;
  bool first = true;
  while (!rest.empty()) {
    const size_t open = rest.find('{'), close = rest.find('}');
    append(t, std::string(rest.substr(0, open)));
    if (open == rest.npos) break;
    const bool strict = f.level == CallText::unary || f.level == CallText::compare || !first;
    const auto a =
        argument(c, std::string(rest.substr(open + 1, close - open - 1)), f.level - strict);
    if (!a) return {};
    append(t, *a);
    first = false;
    rest.remove_prefix(close + 1);
  }
  return CallText{t, f.level};
}

}  // namespace

std::string dtype_text(DType t) { return fmt::format("DType::{}", short_name(t)); }

std::string real(double v) {
  if (std::isnan(v)) return "NAN";
  if (std::isinf(v)) return v < 0 ? "-INFINITY" : "INFINITY";
  std::string s = fmt::format("{}", v);
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s;
}

bool OpCall::is_weight(size_t i) const {
  const ValueId v = step_.in.at(i).value;
  return v != kNoValue && scope_.m.values[static_cast<size_t>(v)].weight >= 0;
}
const Spec& OpCall::spec(size_t i) const {
  return scope_.m.values[static_cast<size_t>(step_.in.at(i).value)].spec;
}
const Shape& OpCall::result(size_t i) const {
  return scope_.m.values[static_cast<size_t>(step_.out.at(i))].spec.shape;
}

Text OpCall::in(size_t i, int level) const {
  const StepInput& x = step_.in.at(i);
  if (x.is_number) {
    const bool negative = x.number.to_double() < 0;
    const std::string s = x.number.kind == 2   ? real(x.number.f)
                          : x.number.kind == 0 ? (x.number.i ? "true" : "false")
                                               : std::to_string(x.number.i);
    return words(negative && level < CallText::unary ? "(" + s + ")" : s);
  }
  if (x.value == kNoValue) return words("{}");
  const CallText t = scope_.operand(x.value);
  return t.level <= level ? t.text : text_of("(", t.text, ")");
}

Text OpCall::list(const IntList& v, const std::string& hint, bool same) const {
  const bool one =
      v.size() == 1 ||
      (same && !v.empty() && std::all_of(v.begin(), v.end(), [&](Dim d) { return d == v[0]; }));
  const auto size_text = [&](Dim d) {
    return d.is_symbolic() ? words(size(d)) : number(d.value(), hint);
  };
  if (one) return size_text(v[0]);
  Text t = words("{");
  for (int i = 0; i < v.rank(); ++i) {
    if (i) append(t, ", ");
    append(t, size_text(v[i]));
  }
  append(t, "}");
  return t;
}

std::optional<CallText> call_text(const OpCall& c) {
  if (!c.step().node || (c.op().shown() > 1 && result_fields(c.op()).empty())) return {};
  const std::string_view row = c.op().name;
  if (const SpecialCall special = special_call(row)) return special(c);
  if (const auto at = call_forms().find(row); at != call_forms().end())
    return at->second.level == CallText::call ? call_by_form(c, at->second.text)
                                              : call_by_operator(c, at->second);
  const std::string form = form_of(c.op());
  if (form.empty()) return {};
  return call_by_form(c, form);
}

std::vector<std::string> result_fields(const OpDef& op) {
  const auto at = call_forms().find(op.name);
  return at == call_forms().end() ? std::vector<std::string>() : words_of(at->second.fields);
}

std::vector<std::string> headers_called(const std::string& text) {
  static constexpr const char* kBeyondTandemH[][2] = {
      {"matmul_integer(", "tandem/ops/matmul/integer.h"},
      {"conv_integer(", "tandem/ops/matmul/integer.h"},
      {"quantize_linear(", "tandem/ops/pointwise/quantize.h"},
      {"fake_quantize(", "tandem/ops/pointwise/quantize.h"},
      {"bitcast(", "tandem/ops/view/bits.h"},
  };
  std::set<std::string> out = {"tandem/tandem.h"};
  for (const auto& [call, header] : kBeyondTandemH)
    if (text.find(call) != text.npos) out.insert(header);
  return {out.begin(), out.end()};
}

std::vector<std::string> rows_with_cpp_form() {
  std::vector<std::string> out = special_rows();
  for (const CallForm& f : kCallForms) out.emplace_back(f.row);
  return out;
}

}  // namespace tandem::edge
