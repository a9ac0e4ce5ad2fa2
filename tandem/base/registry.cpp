// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem {

const Component* RegistryBase::find_component(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it =
      std::find_if(rows_.begin(), rows_.end(), [&](const Component* c) { return c->name == name; });
  return it == rows_.end() ? nullptr : *it;
}

std::vector<const Component*> RegistryBase::components() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

std::vector<std::string> RegistryBase::names() const {
  std::vector<std::string> out;
  for (const Component* c : components()) out.emplace_back(c->name);
  return out;
}

std::string RegistryBase::unknown(std::string_view name) const {
  const std::vector<std::string> all = names();
  const std::string near = nearest_word(name, all);
  std::string list;
  for (const std::string& n : all) list += (list.empty() ? "" : ", ") + n;
  return fmt::format(
      "there is no {} '{}'{}", what_, name,
      near.empty() ? ". There are " + list : fmt::format(", did you mean '{}'?", near));
}

void RegistryBase::put(const Component* row) {
  const std::string_view name = row->name ? row->name : "";
  const bool word = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
  TD_CHECK(word, Value,
           "'{}' is not a name for one of the {}s\nUse letters, digits, '_', '-', '.'.", name,
           what_);
  const std::lock_guard lock(mutex_);
  for (const Component* c : rows_)
    TD_CHECK(c->name != name, Value, "the {} '{}' is there already", what_, name);
  rows_.push_back(row);
}

namespace detail {
void throw_unknown(const RegistryBase& registry, std::string_view name) {
  TD_FAIL(Value, "{}", registry.unknown(name));
}
}  // namespace detail

std::string component_text(const Component& row) {
  std::string out = fmt::format("{}: {}\n  example: {}\n", row.name, row.doc, row.example);
  if (row.options) out += fields_text(*row.options);
  return out;
}

std::string registry_text(const RegistryBase& registry) {
  std::string out;
  for (const Component* c : registry.components()) out += component_text(*c);
  return out;
}

std::string registry_markdown(const RegistryBase& registry) {
  std::string out;
  for (const Component* c : registry.components()) {
    out += fmt::format("### {}\n{}\n\n```yaml\n{}\n```\n", c->name, c->doc, c->example);
    const std::string rows = c->options ? fields_markdown(*c->options) : "";
    if (!rows.empty()) out += "\n| key | kind | default | |\n|---|---|---|---|\n" + rows;
    out += '\n';
  }
  return out;
}

}  // namespace tandem
