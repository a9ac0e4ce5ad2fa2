// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "tandem/base/error.h"

namespace tandem::io {
namespace {

Yaml plain(std::string text) {
  Yaml y;
  y.kind = Yaml::Kind::scalar;
  y.text = std::move(text);
  return y;
}
Yaml of_kind(Yaml::Kind kind) {
  Yaml y;
  y.kind = kind;
  return y;
}

class Writer : public FieldVisitor {
 public:
  Yaml out = of_kind(Yaml::Kind::map);

  void flag(const char* name, bool& v, const Field&) override { put(name, yaml_scalar(v)); }
  void whole(const char* name, int64_t& v, const Field&) override { put(name, yaml_scalar(v)); }
  void number(const char* name, double& v, const Field&) override { put(name, yaml_scalar(v)); }
  void text(const char* name, std::string& v, const Field&) override { put(name, yaml_scalar(v)); }
  void choice(const char* name, size_t& v, const Field& f) override {
    const std::vector<std::string> known = words_of(f.one_of);
    TD_CHECK(v < known.size(), Value, "{} has the value {}, which has no name", name, v);
    put(name, yaml_scalar(known[v]));
  }
  void numbers(const char* name, std::vector<double>& v, const Field&) override { list(name, v); }
  void wholes(const char* name, std::vector<int64_t>& v, const Field&) override { list(name, v); }
  void texts(const char* name, std::vector<std::string>& v, const Field&) override {
    list(name, v);
  }
  bool has_value(const char* name, bool now, const Field&) override {
    if (!now) put(name, of_kind(Yaml::Kind::null));
    return now;
  }
  bool is_word(const char*, bool now, const Field&) override { return now; }
  void part(const char* name, AnyFields v, const Field&) override { put(name, fields_yaml(v)); }
  void parts(const char* name, PartList& v, const Field&) override {
    Yaml all = of_kind(Yaml::Kind::list);
    for (size_t i = 0; i < v.size(); ++i) all.items.push_back(fields_yaml(v.at(i)));
    put(name, std::move(all));
  }
  void component(const char* name, AnyChosen& v, const RegistryBase&, const Field&) override {
    put(name, component_yaml(v));
  }
  void components(const char* name, std::vector<AnyChosen>& v, const RegistryBase&,
                  const Field&) override {
    Yaml all = of_kind(Yaml::Kind::list);
    for (const AnyChosen& one : v) all.items.push_back(component_yaml(one));
    put(name, std::move(all));
  }
  void put(const char* name, Yaml v) {
    out.keys.emplace_back(name);
    out.items.push_back(std::move(v));
  }

 private:
  template <class T>
  void list(const char* name, const std::vector<T>& v) {
    Yaml all = of_kind(Yaml::Kind::list);
    for (const T& x : v) all.items.push_back(yaml_scalar(x));
    put(name, std::move(all));
  }
};

}  // namespace

Yaml yaml_scalar(double v) {
  if (std::isinf(v)) return plain(v < 0 ? "-.inf" : ".inf");
  return plain(fmt::format("{}", v));
}
Yaml yaml_scalar(int64_t v) { return plain(std::to_string(v)); }
Yaml yaml_scalar(bool v) { return plain(v ? "true" : "false"); }
Yaml yaml_scalar(const std::string& v) {
  Yaml y = plain(v);
  y.quoted = v.empty() || v == "null" || v == "~" || y.as_double() || y.as_bool();
  return y;
}

Yaml fields_yaml(AnyFields options) {
  Writer w;
  options.visit(w);
  return std::move(w.out);
}

Yaml component_yaml(const AnyChosen& chosen) {
  if (!chosen.row) return {};
  Writer w;
  w.put("type", yaml_scalar(std::string(chosen.row->name)));
  if (chosen.row->options) chosen.row->options->visit(chosen.options.get(), w);
  return std::move(w.out);
}

Json to_json(const Yaml& y) {
  switch (y.kind) {
    case Yaml::Kind::null:
      return {};
    case Yaml::Kind::list: {
      Json::Array all;
      for (const Yaml& item : y.items) all.push_back(to_json(item));
      return all;
    }
    case Yaml::Kind::map: {
      Json::Object all;
      for (size_t i = 0; i < y.items.size(); ++i) all.emplace_back(y.keys[i], to_json(y.items[i]));
      return all;
    }
    case Yaml::Kind::scalar:
      break;
  }
  if (const auto b = y.as_bool()) return *b;
  if (!y.quoted && y.text.find_first_of(".eE") == y.text.npos)
    if (const auto n = y.as_int()) return *n;
  if (const auto d = y.as_double()) return *d;
  return y.text;
}

Json fields_schema(const FieldsType& type) {
  Json::Array all;
  for (const FieldInfo& i : describe_fields(type)) {
    Json::Object o{{"name", i.name}, {"kind", i.kind}};
    if (!i.fallback.empty()) o.emplace_back("default", to_json(parse_yaml(i.fallback, i.name)));
    if (i.field.required) o.emplace_back("required", true);
    const auto text = [&](const char* key, const char* v) {
      if (*v) o.emplace_back(key, v);
    };
    const auto number = [&](const char* key, double v) {
      if (!std::isnan(v)) o.emplace_back(key, v);
    };
    text("doc", i.field.doc);
    text("unit", i.field.unit);
    number("at_least", i.field.at_least);
    number("above", i.field.above);
    number("at_most", i.field.at_most);
    number("below", i.field.below);
    if (*i.field.one_of) {
      Json::Array words;
      for (const std::string& w : words_of(i.field.one_of)) words.emplace_back(w);
      o.emplace_back("one_of", std::move(words));
    }
    all.emplace_back(std::move(o));
  }
  return all;
}

Json registry_schema(const RegistryBase& registry) {
  Json::Array all;
  for (const Component* c : registry.components())
    all.emplace_back(Json::Object{{"name", c->name},
                                  {"doc", c->doc},
                                  {"example", c->example},
                                  {"fields", c->options ? fields_schema(*c->options) : Json()}});
  return all;
}

}  // namespace tandem::io
