// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sets/npy_dataset.h"

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/graph/context.h"
#include "tandem/io/npy.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

TensorDataset read(const std::string& path, const NpyOptions& o) {
  NoGradGuard no_grad;
  if (!path.ends_with(".npz"))
    return {io::load_npy(path + "/" + o.x + ".npy"), io::load_npy(path + "/" + o.y + ".npy")};
  const StateDict arrays = io::load_npz(path);
  auto array = [&](const std::string& name) {
    if (const Tensor* t = arrays.find(name)) return *t;
    std::string all;
    std::vector<std::string> names;
    for (const auto& [known, t] : arrays) {
      names.push_back(known);
      all += (all.empty() ? "" : ", ") + known;
    }
    const std::string near = nearest_word(name, names);
    TD_FAIL(Value, "'{}' has no array '{}'{} It has {}", path, name,
            near.empty() ? "." : fmt::format(", did you mean '{}'?", near), all);
  };
  const Tensor x = array(o.x), y = array(o.y);
  TD_CHECK(x.dim() > 0 && y.dim() > 0 && x.size(0) == y.size(0), Shape,
           "'{}': '{}' {} and '{}' {} expect one number of rows", path, o.x, x.shape().to_string(),
           o.y, y.shape().to_string());
  return {x, y};
}

}  // namespace

NpyDataset::NpyDataset(const FilePath& path, NpyOptions options)
    : options_(std::move(options)), rows_(read(path.str(), options_)) {
  TD_CHECK(!options_.channels_last || x().dim() == 4, Shape,
           "NpyDataset: channels_last expects '{}' [n, h, w, c], got {}", options_.x,
           x().shape().to_string());
}

// `batch`: 1 when the rows are stacked.
Example NpyDataset::converted(Example e, int batch) const {
  NoGradGuard no_grad;
  const int d = batch;
  if (options_.channels_last) e.x = movedim(e.x, {d + 2}, {d});
  if (e.x.dtype() == DType::u8) {
    if (e.x.dim() == d + 2) e.x = e.x.unsqueeze(d);
    e.x = e.x.to(DType::f32) / 255.0;
  } else {
    e.x = e.x.to(is_floating(e.x.dtype()) ? DType::f32 : DType::i64);
  }
  e.y = e.y.to(is_floating(e.y.dtype()) ? DType::f32 : DType::i64);
  if (e.y.dim() == d + 1 && e.y.size(d) == 1) e.y = e.y.squeeze(d);
  return {e.x.contiguous(), e.y};
}

Example NpyDataset::get(int64_t i) const { return converted(rows_.get(i), 0); }
Example NpyDataset::get_many(std::span<const int64_t> rows) const {
  return converted(rows_.get_many(rows), 1);
}

}  // namespace tandem::data
