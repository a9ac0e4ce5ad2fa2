// SPDX-License-Identifier: Apache-2.0
// Options structs that declare their fields once, as attributes of ops do (graph/attrs.h):
//   template <class V> void fields(V& v) { v("lr", lr, {.doc = "learning rate", .at_least = 0}); }
// Recipe keys with defaults and errors, YAML and JSON, help, reference pages, Keras's defaults and
// the checks of optimizers all read that declaration. One virtual visitor serves every struct.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/base/export.h"

namespace tandem {

class FieldVisitor;
class RegistryBase;
struct Component;

/// What a single number stands for where a list is wanted.
enum class Single : uint8_t {
  refused,      ///< nothing, it is a mistake; where `counts` has 1, a list of one
  itself,       ///< a list of one
  twice,        ///< v, v
  around_zero,  ///< -v, v
  around_one,   ///< 1 - v (not below 0), 1 + v
};

/// Lengths that a list may have: `.counts = counts(1, 2)`; at most 31.
template <class... N>
constexpr uint32_t counts(N... n) {
  return ((uint32_t{1} << n) | ...);
}

/// What a declaration says of a field besides its name and its value, which is the default. All
/// texts are literals.
struct Field {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const char* doc = "";   ///< one line, no full stop
  const char* unit = "";  ///< "steps", "pixels", "seconds"
  double at_least = kNone, above = kNone, at_most = kNone, below = kNone;  ///< numbers and elements
  const char* one_of = "";  ///< allowed words with spaces between; of an enum the names of 0, 1 ...
  const char* elements = "";  ///< names of the elements of a fixed list, "beta1 beta2"
  uint32_t counts = 0;        ///< lengths that a list may have; 0: any
  Single single = Single::refused;
  bool required = false;   ///< has no default
  double none = kNone;     ///< of an optional: a number that says "none" as null does
  double keras = kNone;    ///< Keras's default, where that is another one
  bool resumable = false;  ///< a run that is resumed may have another value from there on
};

/// A struct with fields, its type forgotten.
struct FieldsType {
  std::shared_ptr<void> (*make)();
  void (*visit)(void* object, FieldVisitor& v);
};
template <class T>
constexpr FieldsType kFieldsType = {
    []() -> std::shared_ptr<void> { return std::make_shared<T>(); },
    [](void* object, FieldVisitor& v) { static_cast<T*>(object)->fields(v); },
};
template <class T>
concept HasFields = std::is_class_v<T> && requires(T& t, FieldVisitor& v) {
  t.fields(v);
};

struct AnyFields {
  void* object = nullptr;
  const FieldsType* type = nullptr;
  void visit(FieldVisitor& v) const { type->visit(object, v); }
};
template <HasFields T>
AnyFields any_fields(T& options) {
  return {&options, &kFieldsType<T>};
}
/// For visitors that only read.
template <HasFields T>
AnyFields any_fields(const T& options) {
  return {const_cast<T*>(&options), &kFieldsType<T>};
}

/// A list of structs with fields.
class PartList {
 public:
  virtual ~PartList() = default;
  virtual size_t size() const = 0;
  virtual void resize(size_t n) = 0;
  virtual AnyFields at(size_t i) = 0;
  virtual AnyFields sample() = 0;  ///< one with its defaults
};

/// A component that was chosen by name, with its options (see registry.h).
struct AnyChosen {
  const Component* row = nullptr;
  std::shared_ptr<void> options = nullptr;
};
/// The same as a field: `Chosen<TransformRow> inner`, `std::vector<Chosen<TransformRow>> chain`.
/// Row says `static const RegistryBase& registry();`.
template <class Row>
struct Chosen : AnyChosen {
  const Row* operator->() const { return static_cast<const Row*>(row); }
  explicit operator bool() const { return row != nullptr; }
};

/// A field that takes a word of its `one_of` or else numbers: "balanced" or [1, 2.5].
struct WordOrNumbers {
  std::string word = "";  ///< empty: the numbers count
  std::vector<double> numbers = {};
};

/// Is shown every field of a struct in order. Writers read the value, readers change it.
class TD_API FieldVisitor {
 public:
  virtual ~FieldVisitor();
  virtual void flag(const char* name, bool& v, const Field& f) = 0;
  virtual void whole(const char* name, int64_t& v, const Field& f) = 0;
  virtual void number(const char* name, double& v, const Field& f) = 0;
  virtual void text(const char* name, std::string& v, const Field& f) = 0;
  /// A place in f.one_of.
  virtual void choice(const char* name, size_t& v, const Field& f) = 0;
  virtual void numbers(const char* name, std::vector<double>& v, const Field& f) = 0;
  virtual void wholes(const char* name, std::vector<int64_t>& v, const Field& f) = 0;
  virtual void texts(const char* name, std::vector<std::string>& v, const Field& f) = 0;
  /// Before an optional: is there to be a value? Where the answer is yes, it comes next.
  virtual bool has_value(const char* name, bool now, const Field& f) = 0;
  /// Before a WordOrNumbers: is it a word? text() or numbers() comes next.
  virtual bool is_word(const char* name, bool now, const Field& f) = 0;
  virtual void part(const char* name, AnyFields v, const Field& f) = 0;
  virtual void parts(const char* name, PartList& v, const Field& f) = 0;
  virtual void component(const char* name, AnyChosen& v, const RegistryBase& registry,
                         const Field& f) = 0;
  virtual void components(const char* name, std::vector<AnyChosen>& v, const RegistryBase& registry,
                          const Field& f) = 0;

  template <class T>
  void operator()(const char* name, T& v, Field f = {});
};

/// Sees nothing, but goes into parts, lists and components: for visitors that want a few kinds.
class TD_API QuietVisitor : public FieldVisitor {
 public:
  void flag(const char*, bool&, const Field&) override {}
  void whole(const char*, int64_t&, const Field&) override {}
  void number(const char*, double&, const Field&) override {}
  void text(const char*, std::string&, const Field&) override {}
  void choice(const char*, size_t&, const Field&) override {}
  void numbers(const char*, std::vector<double>&, const Field&) override {}
  void wholes(const char*, std::vector<int64_t>&, const Field&) override {}
  void texts(const char*, std::vector<std::string>&, const Field&) override {}
  bool has_value(const char*, bool now, const Field&) override { return now; }
  bool is_word(const char*, bool now, const Field&) override { return now; }
  void part(const char* name, AnyFields v, const Field& f) override;
  void parts(const char* name, PartList& v, const Field& f) override;
  void component(const char* name, AnyChosen& v, const RegistryBase& registry,
                 const Field& f) override;
  void components(const char* name, std::vector<AnyChosen>& v, const RegistryBase& registry,
                  const Field& f) override;
};

/// The words of a text, at spaces or another separator; empty ones are left out.
TD_API std::vector<std::string> words_of(std::string_view text, char separator = ' ');
/// Does `v` keep the bounds of its field? NaN does not keep any.
TD_API bool in_bounds(const Field& f, double v);
/// "0 or more", "a number from 0 to 1", "a number in [0, 1)", with the unit; "" without bounds.
TD_API std::string bounds_text(const Field& f);
/// The same as a formula: "lr >= 0", "betas in [0, 1)".
TD_API std::string bounds_formula(std::string_view name, const Field& f);
/// "1 or 2 numbers"; "" where any number of them will do.
TD_API std::string counts_text(const Field& f);

/// A field as a reference page shows it. Those of nested parts follow it, their names after its
/// own and a point ("average.decay"; "layers[].size" in lists).
struct FieldInfo {
  std::string name;
  std::string kind;      ///< "number", "whole number", "flag", "text", "one of: a, b", "2 numbers"
  std::string fallback;  ///< the default as YAML; "" for parts and required fields
  Field field;
};
TD_API std::vector<FieldInfo> describe_fields(const FieldsType& type);
/// A line of a reference page or of --help for each: "lr=0.001 (number, 0 or more): learning rate".
TD_API std::string fields_text(const FieldsType& type, std::string_view indent = "  ");
/// The rows of a table "| key | kind | default | |".
TD_API std::string fields_markdown(const FieldsType& type);

/// Sets every field to Keras's default.
TD_API void set_keras_defaults(AnyFields options);
/// Throws Value for the first number or word that its field does not allow: "Adam expects lr >= 0,
/// got -1".
TD_API void check_fields(AnyFields options, std::string_view what);

// ---- from here on: how types reach the visitor

namespace detail {
template <class T>
struct ListParts : PartList {
  std::vector<T>& v;
  T first = {};
  explicit ListParts(std::vector<T>& list) : v(list) {}
  size_t size() const override { return v.size(); }
  void resize(size_t n) override { v.resize(n); }
  AnyFields at(size_t i) override { return any_fields(v.at(i)); }
  AnyFields sample() override { return any_fields(first); }
};
template <class T>
struct IsArray : std::false_type {};
template <size_t N>
struct IsArray<std::array<double, N>> : std::true_type {};
template <class T>
struct ItemOf {
  using type = void;
};
template <class T>
struct ItemOf<std::vector<T>> {
  using type = T;
};
template <class T>
constexpr bool kIsChosen = false;
template <class Row>
constexpr bool kIsChosen<Chosen<Row>> = true;
template <class Row>
const RegistryBase& registry_of(const Chosen<Row>*) {
  return Row::registry();
}
template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
TD_API void throw_array_size(const char* name, size_t want, size_t got);
}  // namespace detail

/// Enums name their values: `constexpr const char* field_names(Mode) { return "fast exact"; }`
template <class T>
void FieldVisitor::operator()(const char* name, T& v, Field f) {
  using Item = typename detail::ItemOf<T>::type;
  if constexpr (std::is_same_v<T, bool>) {
    flag(name, v, f);
  } else if constexpr (std::is_enum_v<T>) {
    f.one_of = field_names(T{});
    auto at = static_cast<size_t>(v);
    choice(name, at, f);
    v = static_cast<T>(at);
  } else if constexpr (std::is_integral_v<T>) {
    auto n = static_cast<int64_t>(v);
    whole(name, n, f);
    v = static_cast<T>(n);
  } else if constexpr (std::is_floating_point_v<T>) {
    auto x = static_cast<double>(v);
    number(name, x, f);
    v = static_cast<T>(x);
  } else if constexpr (std::is_same_v<T, std::string>) {
    text(name, v, f);
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    numbers(name, v, f);
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    wholes(name, v, f);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    texts(name, v, f);
  } else if constexpr (detail::IsArray<T>::value) {
    std::vector<double> all(v.begin(), v.end());
    f.counts = counts(v.size());
    numbers(name, all, f);
    if (all.size() != v.size()) detail::throw_array_size(name, v.size(), all.size());
    for (size_t i = 0; i < v.size(); ++i) v[i] = all[i];
  } else if constexpr (detail::kIsOptional<T>) {
    if (!has_value(name, v.has_value(), f)) {
      v.reset();
    } else {
      if (!v) v = typename T::value_type{};
      (*this)(name, *v, f);
    }
  } else if constexpr (std::is_same_v<T, WordOrNumbers>) {
    if (is_word(name, !v.word.empty(), f)) return text(name, v.word, f);
    v.word.clear();
    f.one_of = "";
    numbers(name, v.numbers, f);
  } else if constexpr (detail::kIsChosen<T>) {
    component(name, v, detail::registry_of(&v), f);
  } else if constexpr (detail::kIsChosen<Item>) {
    std::vector<AnyChosen> all(v.begin(), v.end());
    components(name, all, detail::registry_of(static_cast<const Item*>(nullptr)), f);
    v.assign(all.size(), Item{});
    for (size_t i = 0; i < all.size(); ++i) static_cast<AnyChosen&>(v[i]) = all[i];
  } else if constexpr (HasFields<Item>) {
    detail::ListParts<Item> list(v);
    parts(name, list, f);
  } else {
    static_assert(HasFields<T>,
                  "a field expects a number, text, list, enum or a struct with fields");
    part(name, any_fields(v), f);
  }
}

}  // namespace tandem
