// SPDX-License-Identifier: Apache-2.0
// The optimizers by name: the one table behind recipes (`optim:`, PyTorch's defaults) and
// Model::compile (Keras's names and defaults).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tandem/optim/optimizers.h"

namespace tandem::train {

/// Is shown every setting of an optimizer by PyTorch's name and may change it.
class SettingVisitor {
 public:
  virtual ~SettingVisitor() = default;
  virtual void see(const char* name, double& v) = 0;
  virtual void see(const char* name, bool& v) = 0;
  virtual void see(const char* name, int64_t& v) = 0;
  virtual void see(const char* name, std::string& v) = 0;
  virtual void see(const char* name, std::span<double> v) = 0;
  virtual void see(const char* name, std::optional<double>& v) = 0;
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(optim::ParamList)>;

struct OptimizerRow {
  /// Settings begin with PyTorch's defaults.
  std::function<MakeOptimizer(SettingVisitor&)> read;
  /// What Keras's defaults are instead.
  std::map<std::string, double> keras;
};
const std::map<std::string, OptimizerRow>& optimizer_table();
/// With Keras's defaults.
MakeOptimizer keras_optimizer(const OptimizerRow& row);

}  // namespace tandem::train
