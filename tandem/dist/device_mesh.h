// SPDX-License-Identifier: Apache-2.0
// DeviceMesh: the ranks of a job as a grid whose dimensions have names, with a group for each row.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/engine.h"
#include "tandem/dist/process_group.h"

namespace tandem::distributed {

/// `auto mesh = init_device_mesh({2, 2, 2}, {"pp", "dp", "tp"}); mesh["tp"]` is the group of ranks
/// that differ in "tp" alone. The last dimension counts fastest, as in PyTorch: ranks that exchange
/// most belong there.
class TD_API DeviceMesh {
 public:
  /// All ranks of `engine` call it. Throws Value where the sizes do not make the number of ranks,
  /// for names that are empty or used twice.
  DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> names,
             std::shared_ptr<Engine> engine);

  /// The group along that dimension; throws Value naming those that there are.
  const std::shared_ptr<Engine>& operator[](const std::string& name) const;
  const std::shared_ptr<Engine>& get_group(const std::string& name) const { return (*this)[name]; }
  /// How many ranks there are along it, and which of them this one is.
  int64_t size(const std::string& name) const;
  int64_t get_local_rank(const std::string& name) const;

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<std::string>& mesh_dim_names() const { return names_; }
  const std::shared_ptr<Engine>& world() const { return world_; }

 private:
  size_t dim_of(const std::string& name) const;
  std::vector<int64_t> shape_, at_;
  std::vector<std::string> names_;
  std::shared_ptr<Engine> world_;
  std::vector<std::shared_ptr<Engine>> groups_;
};

/// A mesh of all ranks of the job, or of `engine`.
TD_API DeviceMesh init_device_mesh(std::vector<int64_t> shape, std::vector<std::string> names,
                                   std::shared_ptr<Engine> engine = nullptr);

}  // namespace tandem::distributed
