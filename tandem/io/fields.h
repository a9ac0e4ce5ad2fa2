// SPDX-License-Identifier: Apache-2.0
// Options structs with fields (base/fields.h) as YAML and JSON: their values, and what is declared
// of them. Reading YAML with messages is recipe/fields.h.
#pragma once

#include "tandem/base/registry.h"
#include "tandem/io/json.h"
#include "tandem/io/yaml.h"

namespace tandem::io {

/// A map of all fields with their values; an optional without one is null.
TD_API Yaml fields_yaml(AnyFields options);
/// "{type: adamw, lr: ...}"
TD_API Yaml component_yaml(const AnyChosen& chosen);
/// YAML's scalars as what they look like, quoted ones as strings.
TD_API Json to_json(const Yaml& y);
/// For each field its name, kind, default, doc, unit, bounds and words: what a binding for another
/// language or a form needs.
TD_API Json fields_schema(const FieldsType& type);
/// For each row its name, doc, example and fields.
TD_API Json registry_schema(const RegistryBase& registry);

/// Scalars as recipes write them; a text that looks like a number or a flag is quoted.
TD_API Yaml yaml_scalar(double v);
TD_API Yaml yaml_scalar(int64_t v);
TD_API Yaml yaml_scalar(bool v);
TD_API Yaml yaml_scalar(const std::string& v);

}  // namespace tandem::io
