// SPDX-License-Identifier: Apache-2.0
// What holds for every row of every registry of components: texts, docs of fields, an example that
// reads, values that survive a round trip through YAML, and mistakes that name the nearest key.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "tandem/io/fields.h"
#include "tandem/recipe/fields.h"
#include "tests/support/errors.h"

namespace tandem {

/// `besides`: fields of the part that are not the row's own.
inline void check_component(const RegistryBase& registry, const Component& row,
                            const std::vector<const FieldsType*>& besides = {}) {
  SCOPED_TRACE(std::string(registry.what()) + " " + row.name);
  EXPECT_GE(std::strlen(row.doc), 8u);
  EXPECT_EQ(row.doc[std::strlen(row.doc) - 1], '.') << row.doc;
  std::vector<FieldInfo> fields;
  if (row.options) fields = describe_fields(*row.options);
  for (const FieldInfo& i : fields) {
    EXPECT_GE(std::strlen(i.field.doc), 4u) << i.name << " has no doc";
    EXPECT_NE(i.field.doc[std::strlen(i.field.doc) - 1], '.') << i.name << ": no full stop";
  }

  // `text` with all that was resolved, and the component's own values, as YAML.
  const auto read = [&](const std::string& text) {
    const io::Yaml yaml = io::parse_yaml(text, "example");
    const auto resolved = std::make_shared<io::Yaml>();
    recipe::Options o(&yaml, "", "example", resolved);
    for (const FieldsType* more : besides) {
      const std::shared_ptr<void> run = more->make();
      recipe::read_fields(o, {run.get(), more});
    }
    const AnyChosen chosen = recipe::read_any_component(o, registry);
    EXPECT_EQ(chosen.row, &row);
    o.finish();
    return std::pair<std::string, std::string>(resolved->dump(), io::component_yaml(chosen).dump());
  };
  const auto [resolved, values] = read(row.example);
  EXPECT_EQ(read(resolved), std::pair(resolved, values)) << resolved;
  if (besides.empty()) {
    EXPECT_EQ(read(values).second, values) << values;
  }

  std::string example = row.example;
  ASSERT_EQ(example.back(), '}');
  example.pop_back();
  EXPECT_NE(error_of([&] {
              read(example + ", qqqqqqqqqqqqqqqqqqqq: 1}");
            }).find("there is no such key. There are "),
            std::string::npos);
  if (!fields.empty() && besides.empty()) {
    EXPECT_NE(error_of([&] {
                read(example + ", " + fields[0].name + "q: 1}");
              }).find("did you mean '" + fields[0].name + "'?"),
              std::string::npos);
  }
}

}  // namespace tandem
