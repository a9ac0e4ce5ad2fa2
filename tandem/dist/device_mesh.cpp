// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/device_mesh.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem::distributed {

DeviceMesh::DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> names,
                       std::shared_ptr<Engine> engine)
    : shape_(std::move(shape)), names_(std::move(names)), world_(std::move(engine)) {
  TD_CHECK(!shape_.empty() && shape_.size() == names_.size(), Value,
           "DeviceMesh expects a name for each dimension, got {} sizes and {} names", shape_.size(),
           names_.size());
  int64_t ranks = 1;
  for (size_t d = 0; d < shape_.size(); ++d) {
    TD_CHECK(shape_[d] > 0 && shape_[d] <= world_->size(), Value,
             "DeviceMesh: '{}' has a size of {}, expected 1 to {} (the ranks)", names_[d],
             shape_[d], world_->size());
    TD_CHECK(!names_[d].empty() && std::count(names_.begin(), names_.end(), names_[d]) == 1, Value,
             "DeviceMesh expects names that differ, '{}' is used twice or is empty", names_[d]);
    ranks *= shape_[d];
    TD_CHECK(ranks <= world_->size(), Value,
             "DeviceMesh [{}] has more than the {} ranks of the job", fmt::join(shape_, ", "),
             world_->size());
  }
  TD_CHECK(ranks == world_->size(), Value,
           "DeviceMesh [{}] has {} ranks, the job has {}\nStart as many ranks as the sizes "
           "multiplied.",
           fmt::join(shape_, ", "), ranks, world_->size());
  at_.resize(shape_.size());
  int64_t rest = world_->rank();
  for (size_t d = shape_.size(); d-- > 0; rest /= shape_[d]) at_[d] = rest % shape_[d];
  for (size_t d = 0; d < shape_.size(); ++d) {
    int64_t color = 0;  // the same for ranks that differ in d alone
    for (size_t i = 0; i < shape_.size(); ++i) color = color * shape_[i] + (i == d ? 0 : at_[i]);
    groups_.push_back(world_->split(static_cast<int>(color), static_cast<int>(at_[d])));
  }
}

size_t DeviceMesh::dim_of(const std::string& name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  TD_CHECK(at != names_.end(), Value, "the mesh has no dimension '{}'\nIt has: {}.", name,
           fmt::join(names_, ", "));
  return static_cast<size_t>(at - names_.begin());
}
const std::shared_ptr<Engine>& DeviceMesh::operator[](const std::string& name) const {
  return groups_[dim_of(name)];
}
int64_t DeviceMesh::size(const std::string& name) const { return shape_[dim_of(name)]; }
int64_t DeviceMesh::get_local_rank(const std::string& name) const { return at_[dim_of(name)]; }

DeviceMesh init_device_mesh(std::vector<int64_t> shape, std::vector<std::string> names,
                            std::shared_ptr<Engine> engine) {
  return {std::move(shape), std::move(names), engine ? std::move(engine) : world()};
}

}  // namespace tandem::distributed
