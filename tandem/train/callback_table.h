// SPDX-License-Identifier: Apache-2.0
// The callbacks that can be named, each with the fields of its options and an example that runs:
// `trainer.callbacks` of recipes and the reference page read these rows.
#pragma once

#include "tandem/base/registry.h"
#include "tandem/train/callbacks.h"

namespace tandem::train {

/// A row of callbacks(). `folder` is the run's, "" without one: files that a callback writes lie
/// in it unless they are named by a whole path.
struct CallbackRow : Component {
  std::shared_ptr<Callback> (*make)(const void* options, const std::string& folder);
  static const RegistryBase& registry();
};
using ChosenCallback = Chosen<CallbackRow>;

/// Every callback but those that want code (LambdaCallback, LearningRateScheduler, History); a
/// program may add its own.
TD_API Registry<CallbackRow>& callbacks();
TD_API std::shared_ptr<Callback> make_callback(const ChosenCallback& chosen,
                                               const std::string& folder = "");

}  // namespace tandem::train
