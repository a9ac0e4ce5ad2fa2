// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/nearest.h"
#include "tandem/io/fields.h"

namespace tandem::recipe {
namespace {

// "ema, swa or none"
std::string either(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out;
}

class Reader : public FieldVisitor {
 public:
  explicit Reader(Options& o) : o_(o) {}

  void flag(const char* name, bool& v, const Field& f) override {
    see(name, f);
    v = o_.flag(name, given(v, f));
  }
  void whole(const char* name, int64_t& v, const Field& f) override {
    see(name, f);
    v = o_.whole(name, given(v, f));
    check(name, static_cast<double>(v), f);
  }
  void number(const char* name, double& v, const Field& f) override {
    see(name, f);
    v = o_.number(name, given(v, f));
    check(name, v, f);
  }
  void text(const char* name, std::string& v, const Field& f) override {
    see(name, f);
    v = o_.text(name, given(v, f));
    if (*f.one_of && o_.has(name)) place(name, v, f);
  }
  void choice(const char* name, size_t& v, const Field& f) override {
    see(name, f);
    const std::vector<std::string> known = words_of(f.one_of);
    const std::string usual = v < known.size() ? known[v] : "";
    v = place(name, o_.text(name, given(usual, f)), f);
  }
  void numbers(const char* name, std::vector<double>& v, const Field& f) override {
    v = list(name, v, f);
  }
  void wholes(const char* name, std::vector<int64_t>& v, const Field& f) override {
    const std::vector<double> read = list(name, std::vector<double>(v.begin(), v.end()), f);
    v.clear();
    for (double x : read) {
      if (!(std::abs(x) <= 9e15 && x == std::floor(x)))
        o_.fail(name, fmt::format("expected whole numbers, got {}", x));
      v.push_back(static_cast<int64_t>(x));
    }
  }
  void texts(const char* name, std::vector<std::string>& v, const Field& f) override {
    see(name, f);
    if (f.required && !o_.has(name)) o_.text(name);  // says that it is missing
    v = o_.texts(name, v);
    if (*f.one_of)
      for (const std::string& word : v) place(name, word, f);
  }
  bool has_value(const char* name, bool now, const Field& f) override {
    see(name, f);
    if (!o_.has(name)) {
      if (!now && !f.required) o_.resolve_as(name, {});
      return now || f.required;
    }
    if (o_.is_null(name)) {
      o_.resolve_as(name, {});
      return false;
    }
    // A number that stands for none.
    return std::isnan(f.none) || o_.is_text(name) || o_.number(name) != f.none;
  }
  bool is_word(const char* name, bool now, const Field&) override {
    return o_.has(name) && !o_.is_null(name) ? o_.is_text(name) : now;
  }
  void part(const char* name, AnyFields v, const Field& f) override {
    see(name, f);
    if (f.required && !o_.has(name)) o_.text(name);
    Options inner = o_.part(name);
    read_fields(inner, v);
    inner.finish();
  }
  void parts(const char* name, PartList& v, const Field& f) override {
    see(name, f);
    if (f.required && !o_.has(name)) o_.text(name);
    io::Yaml usual;
    usual.kind = io::Yaml::Kind::list;
    for (size_t i = 0; i < v.size(); ++i) usual.items.push_back(io::fields_yaml(v.at(i)));
    std::vector<Options> inner = o_.parts(name, &usual);
    v.resize(0);
    v.resize(inner.size());
    for (size_t i = 0; i < inner.size(); ++i) {
      read_fields(inner[i], v.at(i));
      inner[i].finish();
    }
  }
  void component(const char* name, AnyChosen& v, const RegistryBase& registry,
                 const Field& f) override {
    see(name, f);
    if (!o_.has(name) && !f.required) return o_.resolve_as(name, io::component_yaml(v));
    if (!o_.has(name)) o_.text(name);
    if (o_.is_null(name)) {
      v = {};
      return o_.resolve_as(name, {});
    }
    Options inner = o_.part(name);
    v = read_any_component(inner, registry);
    inner.finish();
  }
  void components(const char* name, std::vector<AnyChosen>& v, const RegistryBase& registry,
                  const Field& f) override {
    see(name, f);
    if (f.required && !o_.has(name)) o_.text(name);
    io::Yaml usual;
    usual.kind = io::Yaml::Kind::list;
    for (const AnyChosen& one : v) usual.items.push_back(io::component_yaml(one));
    std::vector<Options> inner = o_.parts(name, &usual);
    v.clear();
    for (Options& one : inner) {
      v.push_back(read_any_component(one, registry));
      one.finish();
    }
    if (f.required && v.empty())
      o_.fail(name, fmt::format("expected at least one {}", registry.what()));
  }

 private:
  void see(const char* name, const Field& f) {
    if (f.resumable) o_.may_change(name);
  }
  template <class T>
  static std::optional<T> given(const T& v, const Field& f) {
    return f.required ? std::optional<T>() : std::optional<T>(v);
  }
  void check(const char* name, double v, const Field& f) const {
    if (o_.has(name) && !in_bounds(f, v))
      o_.fail(name, fmt::format("expected {}, got {}", bounds_text(f), v));
  }
  size_t place(const char* name, const std::string& word, const Field& f) const {
    const std::vector<std::string> known = words_of(f.one_of);
    const auto it = std::find(known.begin(), known.end(), word);
    if (it != known.end()) return static_cast<size_t>(it - known.begin());
    const std::string near = nearest_word(word, known);
    o_.fail(name, fmt::format("expected {}, got '{}'{}", either(known), word,
                              near.empty() ? "" : fmt::format(", did you mean '{}'?", near)));
  }
  std::vector<double> list(const char* name, std::vector<double> usual, const Field& f) {
    see(name, f);
    const bool single = o_.has(name) && o_.is_number(name);
    std::vector<double> v = o_.numbers(name, given(usual, f));
    if (single && f.single == Single::refused && f.counts == 0)
      o_.fail(name, fmt::format("expected a list such as [{0}], got {0}", v[0]));
    if (single && f.single > Single::itself) {
      const double x = v[0];
      v = f.single == Single::twice         ? std::vector<double>{x, x}
          : f.single == Single::around_zero ? std::vector<double>{-x, x}
                                            : std::vector<double>{std::max(0.0, 1 - x), 1 + x};
    }
    if (f.counts && o_.has(name) && (v.size() > 31 || !(f.counts >> v.size() & 1)))
      o_.fail(name, fmt::format("expected {}, got {}", counts_text(f), v.size()));
    for (double x : v) check(name, x, f);
    return v;
  }
  Options& o_;
};

}  // namespace

void read_fields(Options& o, AnyFields options) {
  Reader r(o);
  options.visit(r);
}

AnyChosen read_any_component(Options& o, const RegistryBase& registry,
                             const std::function<void(AnyChosen&)>& prepare) {
  const std::string type = o.text("type");
  AnyChosen chosen{registry.find_component(type)};
  if (!chosen.row) o.fail("type", registry.unknown(type));
  if (!chosen.row->options) return chosen;
  chosen.options = chosen.row->options->make();
  if (prepare) prepare(chosen);
  read_fields(o, {chosen.options.get(), chosen.row->options});
  return chosen;
}

}  // namespace tandem::recipe
