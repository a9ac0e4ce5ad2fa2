// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/setting_values_internal.h"

#include <algorithm>

namespace tandem::recipe {
namespace {

bool is_null(const io::Yaml* y) { return !y || y->kind == io::Yaml::Kind::null; }

}  // namespace

std::string setting_text(const io::Yaml* y) {
  if (!y || y->kind == io::Yaml::Kind::null) return "null";
  if (y->kind == io::Yaml::Kind::scalar) return y->text;
  std::string out;
  for (size_t i = 0; i < y->items.size(); ++i)
    out += (i ? ", " : "") + (y->kind == io::Yaml::Kind::map ? y->keys[i] + ": " : std::string()) +
           setting_text(&y->items[i]);
  return y->kind == io::Yaml::Kind::map ? "{" + out + "}" : "[" + out + "]";
}

bool same_setting(const io::Yaml* a, const io::Yaml* b) {
  if (is_null(a) || is_null(b)) return is_null(a) == is_null(b);
  const auto single = [](const io::Yaml* y) {
    return y->kind == io::Yaml::Kind::list && y->items.size() == 1 ? &y->items[0] : y;
  };
  if (a->kind != b->kind)
    return single(a)->kind == single(b)->kind && single(a) != a
               ? same_setting(single(a), b)
               : single(b) != b && same_setting(a, single(b));
  if (a->kind == io::Yaml::Kind::scalar) {
    const auto x = a->as_double(), y = b->as_double();
    return x && y ? *x == *y : a->text == b->text;
  }
  if (a->items.size() != b->items.size() || a->keys != b->keys) return false;
  for (size_t i = 0; i < a->items.size(); ++i)
    if (!same_setting(&a->items[i], &b->items[i])) return false;
  return true;
}

}  // namespace tandem::recipe
