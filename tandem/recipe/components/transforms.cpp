// SPDX-License-Identifier: Apache-2.0
// `transforms:` of a recipe's images: rows of data::transforms(), as chains of functions.
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/components_internal.h"
#include "tandem/recipe/fields.h"
#include "tandem/tensor/dtype_name.h"

namespace tandem::recipe {
namespace {

struct Chain {
  std::vector<data::ChosenTransform> transforms = {};
  template <class V>
  void fields(V& v) {
    v("transforms", transforms);
  }
};

}  // namespace

DType dtype_at(const Options& o, const char* key, const std::string& name) {
  try {
    return dtype_named(name);
  } catch (const Error& e) {
    o.fail(key, e.text());
  }
}

std::vector<data::ChosenTransform> transforms_of(const char* yaml) {
  io::Yaml part;
  part.kind = io::Yaml::Kind::map;
  part.keys.emplace_back("transforms");
  part.items.push_back(io::parse_yaml(yaml, "transforms"));
  Options o(&part, "", "transforms");
  return read_part<Chain>(o).transforms;
}

std::optional<data::Transform> transform_chain(const std::vector<data::ChosenTransform>& chosen) {
  if (chosen.empty()) return {};
  return data::Compose(data::make_transforms(chosen));
}

data::Transform make_transform(const std::string& yaml) {
  const bool list = io::parse_yaml(yaml, "transform").kind == io::Yaml::Kind::list;
  std::vector<data::ChosenTransform> all = transforms_of((list ? yaml : "[" + yaml + "]").c_str());
  return all.size() == 1 ? data::make_transform(all[0]) : data::Compose(data::make_transforms(all));
}

data::Vision transformed(const std::optional<data::Transform>& chain, data::Vision v) {
  if (v.image.dtype() != DType::u8) v.image = round(v.image * 255.0).to(DType::u8);
  if (chain) v = (*chain)(std::move(v));
  if (v.image.dtype() == DType::u8) v.image = data::to_dtype_image(v.image, DType::f32, true);
  return v;
}

}  // namespace tandem::recipe
