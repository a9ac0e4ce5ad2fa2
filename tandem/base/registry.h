// SPDX-License-Identifier: Apache-2.0
// Registries: the components of one kind (optimizers, schedules, losses, transforms, models ...)
// by name. A row holds the name, what it is, the fields of its options, an example that runs, and
// what its kind needs besides, such as a factory. The library's rows are constant tables, so
// nothing runs at load time; a program adds its own with add().
#pragma once

#include <deque>
#include <mutex>
#include <span>

#include "tandem/base/fields.h"

namespace tandem {

/// What every row says. All texts are literals.
struct Component {
  const char* name;                     ///< in recipes: "adamw"
  const char* doc;                      ///< one line
  const char* example;                  ///< YAML that runs: "{type: adamw, lr: 3e-4}"
  const FieldsType* options = nullptr;  ///< nullptr: it has none
};

/// The part of a registry that does not depend on the kind.
class TD_API RegistryBase {
 public:
  /// "optimizer", as messages call one.
  const char* what() const { return what_; }
  const Component* find_component(std::string_view name) const;
  /// All of them, in the order of the table, then of add().
  std::vector<const Component*> components() const;
  std::vector<std::string> names() const;
  /// "there is no optimizer 'adm', did you mean 'adam'?", or with the list of all.
  std::string unknown(std::string_view name) const;
  RegistryBase(const RegistryBase&) = delete;
  RegistryBase& operator=(const RegistryBase&) = delete;

 protected:
  explicit RegistryBase(const char* what) : what_(what) {}
  /// Throws Value for a name that is taken or is not a word.
  void put(const Component* row);

 private:
  const char* what_;
  mutable std::mutex mutex_;
  std::vector<const Component*> rows_;
};

/// Row derives from Component.
template <class Row>
class Registry : public RegistryBase {
 public:
  Registry(const char* what, std::span<const Row> own) : RegistryBase(what) {
    for (const Row& row : own) put(&row);
  }
  Registry(const char* what, std::span<const Row* const> own) : RegistryBase(what) {
    for (const Row* row : own) put(row);
  }
  const Row* find(std::string_view name) const {
    return static_cast<const Row*>(find_component(name));
  }
  /// Throws Value naming the nearest.
  const Row& at(std::string_view name) const;
  std::vector<const Row*> rows() const {
    std::vector<const Row*> all;
    for (const Component* c : components()) all.push_back(static_cast<const Row*>(c));
    return all;
  }
  /// One more, until the program ends. Throws Value for a name that is taken.
  void add(const Row& row) {
    const std::lock_guard lock(mutex_);
    put(&added_.emplace_back(row));
  }

 private:
  std::mutex mutex_;
  std::deque<Row> added_;  // rows stay where they are
};

namespace detail {
[[noreturn]] TD_API void throw_unknown(const RegistryBase& registry, std::string_view name);
}
template <class Row>
const Row& Registry<Row>::at(std::string_view name) const {
  if (const Row* row = find(name)) return *row;
  detail::throw_unknown(*this, name);
}

/// A registry's reference: each row with its doc, example and fields, as text or as Markdown.
TD_API std::string registry_text(const RegistryBase& registry);
TD_API std::string component_text(const Component& row);
TD_API std::string registry_markdown(const RegistryBase& registry);

}  // namespace tandem
