// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/registry.h"

namespace tandem {

FieldVisitor::~FieldVisitor() = default;

void QuietVisitor::part(const char*, AnyFields v, const Field&) { v.visit(*this); }
void QuietVisitor::parts(const char*, PartList& v, const Field&) {
  for (size_t i = 0; i < v.size(); ++i) v.at(i).visit(*this);
}
void QuietVisitor::component(const char*, AnyChosen& v, const RegistryBase&, const Field&) {
  if (v.row && v.row->options) v.row->options->visit(v.options.get(), *this);
}
void QuietVisitor::components(const char* name, std::vector<AnyChosen>& v,
                              const RegistryBase& registry, const Field& f) {
  for (AnyChosen& one : v) component(name, one, registry, f);
}

std::vector<std::string> words_of(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find(separator, from), text.size());
    if (end > from) out.emplace_back(text.substr(from, end - from));
    from = end + 1;
  }
  return out;
}

bool in_bounds(const Field& f, double v) {
  const auto given = [](double bound) { return !std::isnan(bound); };
  return (!given(f.at_least) || v >= f.at_least) && (!given(f.above) || v > f.above) &&
         (!given(f.at_most) || v <= f.at_most) && (!given(f.below) || v < f.below);
}

std::string bounds_text(const Field& f) {
  const bool low_open = !std::isnan(f.above), high_open = !std::isnan(f.below);
  const double low = low_open ? f.above : f.at_least, high = high_open ? f.below : f.at_most;
  const std::string unit = *f.unit ? std::string(" ") + f.unit : "";
  const bool has_low = !std::isnan(low), has_high = !std::isnan(high);
  if (has_low && has_high) {
    if (!low_open && !high_open) return fmt::format("a number from {} to {}{}", low, high, unit);
    return fmt::format("a number in {}{}, {}{}{}", low_open ? '(' : '[', low, high,
                       high_open ? ')' : ']', unit);
  }
  if (has_low)
    return low_open ? fmt::format("a number above {}{}", low, unit)
                    : fmt::format("{} or more{}", low, unit);
  if (has_high)
    return high_open ? fmt::format("a number below {}{}", high, unit)
                     : fmt::format("{} or less{}", high, unit);
  return "";
}

std::string bounds_formula(std::string_view name, const Field& f) {
  const bool low_open = !std::isnan(f.above), high_open = !std::isnan(f.below);
  const double low = low_open ? f.above : f.at_least, high = high_open ? f.below : f.at_most;
  if (!std::isnan(low) && !std::isnan(high))
    return fmt::format("{} in {}{}, {}{}", name, low_open ? '(' : '[', low, high,
                       high_open ? ')' : ']');
  if (!std::isnan(low)) return fmt::format("{} {} {}", name, low_open ? ">" : ">=", low);
  if (!std::isnan(high)) return fmt::format("{} {} {}", name, high_open ? "<" : "<=", high);
  return std::string(name);
}

std::string counts_text(const Field& f) {
  std::string out;
  for (uint32_t n = 1; n < 32; ++n)
    if (f.counts >> n & 1) out += fmt::format("{}{}", out.empty() ? "" : " or ", n);
  if (out.empty()) return "";
  return out + (out == "1" ? " number" : " numbers");
}

namespace detail {
void throw_array_size(const char* name, size_t want, size_t got) {
  TD_FAIL(Value, "{} expects {} numbers, got {}", name, want, got);
}
}  // namespace detail

namespace {

// As YAML writes it: a text that could be read as something else is quoted.
std::string in_quotes(const std::string& v) {
  const bool plain = !v.empty() && v.find_first_of(" :#,[]{}\"'&*!|>%@`\n") == v.npos &&
                     v != "true" && v != "false" && v != "null" &&
                     v.find_first_of("0123456789.+-") != 0;
  return plain ? v : "\"" + v + "\"";
}

template <class T, class F>
std::string listed(const std::vector<T>& v, F each) {
  std::string out;
  for (const T& x : v) out += (out.empty() ? "" : ", ") + each(x);
  return "[" + out + "]";
}

class Describe : public FieldVisitor {
 public:
  std::vector<FieldInfo> all;

  void flag(const char* name, bool& v, const Field& f) override {
    add(name, "flag", v ? "true" : "false", f);
  }
  void whole(const char* name, int64_t& v, const Field& f) override {
    add(name, "whole number", std::to_string(v), f);
  }
  void number(const char* name, double& v, const Field& f) override {
    add(name, "number", fmt::format("{}", v), f);
  }
  void text(const char* name, std::string& v, const Field& f) override {
    add(name, *f.one_of ? words(f) : "text", in_quotes(v), f);
  }
  void choice(const char* name, size_t& v, const Field& f) override {
    const std::vector<std::string> known = words_of(f.one_of);
    add(name, words(f), v < known.size() ? known[v] : "", f);
  }
  void numbers(const char* name, std::vector<double>& v, const Field& f) override {
    add(name, list_kind(f, "numbers"), listed(v, [](double x) { return fmt::format("{}", x); }), f);
  }
  void wholes(const char* name, std::vector<int64_t>& v, const Field& f) override {
    add(name, list_kind(f, "whole numbers"), listed(v, [](int64_t x) { return std::to_string(x); }),
        f);
  }
  void texts(const char* name, std::vector<std::string>& v, const Field& f) override {
    add(name, "list of texts", listed(v, in_quotes), f);
  }
  bool has_value(const char*, bool now, const Field&) override {
    none_ = !now;
    return true;
  }
  bool is_word(const char*, bool now, const Field& f) override {
    word_ = f.one_of;
    return now;
  }
  void part(const char* name, AnyFields v, const Field& f) override {
    add(name, "part", "", f);
    within(std::string(name) + ".", v);
  }
  void parts(const char* name, PartList& v, const Field& f) override {
    add(name, "list of parts", "", f);
    within(std::string(name) + "[].", v.sample());
  }
  void component(const char* name, AnyChosen& v, const RegistryBase& registry,
                 const Field& f) override {
    add(name, fmt::format("a {} {{type: ...}}", registry.what()), v.row ? v.row->name : "null", f);
  }
  void components(const char* name, std::vector<AnyChosen>&, const RegistryBase& registry,
                  const Field& f) override {
    add(name, fmt::format("list of {}s [{{type: ...}}]", registry.what()), "[]", f);
  }

 private:
  static std::string words(const Field& f) {
    std::string out;
    for (const std::string& w : words_of(f.one_of)) out += (out.empty() ? "one of: " : ", ") + w;
    return out;
  }
  static std::string list_kind(const Field& f, const std::string& what) {
    std::string out;
    if (f.counts == 0 && f.single == Single::itself)
      return fmt::format("{} or list of {}", what.substr(0, what.size() - 1), what);
    for (uint32_t n = 1; n < 32; ++n)
      if (f.counts >> n & 1) out += (out.empty() ? "" : " or ") + std::to_string(n);
    return out.empty() ? fmt::format("list of {}", what) : fmt::format("{} {}", out, what);
  }
  void add(const char* name, std::string kind, std::string fallback, const Field& f) {
    if (std::exchange(none_, false)) fallback = "null";
    if (const std::string word = std::exchange(word_, ""); !word.empty() && kind != words(f))
      kind += ", or " + word;
    if (f.required) fallback.clear();
    all.push_back({prefix_ + name, std::move(kind), std::move(fallback), f});
  }
  void within(const std::string& more, AnyFields v) {
    const size_t before = prefix_.size();
    prefix_ += more;
    v.visit(*this);
    prefix_.resize(before);
  }
  std::string prefix_;
  bool none_ = false;
  std::string word_;
};

class Keras : public QuietVisitor {
 public:
  void number(const char*, double& v, const Field& f) override {
    if (!std::isnan(f.keras)) v = f.keras;
  }
};

class Check : public QuietVisitor {
 public:
  explicit Check(std::string_view what) : what_(what) {}
  void whole(const char* name, int64_t& v, const Field& f) override {
    check(name, static_cast<double>(v), f);
  }
  void number(const char* name, double& v, const Field& f) override { check(name, v, f); }
  void numbers(const char* name, std::vector<double>& v, const Field& f) override {
    for (double x : v) check(name, x, f);
  }
  void wholes(const char* name, std::vector<int64_t>& v, const Field& f) override {
    for (int64_t x : v) check(name, static_cast<double>(x), f);
  }
  void text(const char* name, std::string& v, const Field& f) override {
    if (!*f.one_of) return;
    const std::vector<std::string> known = words_of(f.one_of);
    if (std::find(known.begin(), known.end(), v) != known.end()) return;
    std::string all;
    for (const std::string& w : known) all += (all.empty() ? "" : ", ") + w;
    TD_FAIL(Value, "{} expects {} to be one of {}, got \"{}\"", what_, name, all, v);
  }

 private:
  void check(const char* name, double v, const Field& f) const {
    TD_CHECK(in_bounds(f, v), Value, "{} expects {}, got {}", what_, bounds_formula(name, f), v);
  }
  std::string_view what_;
};

// "number, 0 or more".
std::string kind_text(const FieldInfo& i) {
  const std::string bounds = bounds_text(i.field);
  std::string out = i.kind;
  if (!bounds.empty())
    out += ", " + bounds;
  else if (*i.field.unit)
    out += std::string(", ") + i.field.unit;
  return out;
}
std::string cell(std::string s) {
  for (size_t at = 0; (at = s.find('|', at)) != s.npos; at += 2) s.insert(at, 1, '\\');
  return s;
}

}  // namespace

std::vector<FieldInfo> describe_fields(const FieldsType& type) {
  Describe d;
  const std::shared_ptr<void> made = type.make();
  type.visit(made.get(), d);
  return std::move(d.all);
}

std::string fields_text(const FieldsType& type, std::string_view indent) {
  std::string out;
  for (const FieldInfo& i : describe_fields(type))
    out += fmt::format("{}{}{} ({}{}){}{}\n", indent, i.name,
                       i.fallback.empty() ? "" : "=" + i.fallback, kind_text(i),
                       i.field.required ? ", required" : "", *i.field.doc ? ": " : "", i.field.doc);
  return out;
}

std::string fields_markdown(const FieldsType& type) {
  std::string out;
  for (const FieldInfo& i : describe_fields(type))
    out += fmt::format("| `{}` | {} | {} | {} |\n", i.name, cell(kind_text(i)),
                       i.field.required     ? "required"
                       : i.fallback.empty() ? ""
                                            : "`" + cell(i.fallback) + "`",
                       cell(i.field.doc));
  return out;
}

void set_keras_defaults(AnyFields options) {
  Keras v;
  options.visit(v);
}

void check_fields(AnyFields options, std::string_view what) {
  Check v(what);
  options.visit(v);
}

}  // namespace tandem
