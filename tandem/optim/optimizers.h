// SPDX-License-Identifier: Apache-2.0
// The optimizers, with PyTorch's options, defaults and order of operations where PyTorch has them;
// LAMB, LARS and Lion follow their papers. A new one is a file in optimizers/, included and listed
// here; recipes, Model::compile, the planner and the reference pages then know it.
#pragma once

#include "tandem/base/registry.h"
#include "tandem/optim/optimizers/adafactor.h"
#include "tandem/optim/optimizers/adagrad.h"
#include "tandem/optim/optimizers/adam.h"
#include "tandem/optim/optimizers/adam_variants.h"
#include "tandem/optim/optimizers/adamw8bit.h"
#include "tandem/optim/optimizers/layerwise.h"
#include "tandem/optim/optimizers/lbfgs.h"
#include "tandem/optim/optimizers/lion.h"
#include "tandem/optim/optimizers/muon.h"
#include "tandem/optim/optimizers/sgd.h"

/// X(class) for every optimizer that step() drives, with options <class>Options.
#define TD_FOR_EACH_OPTIMIZER(X) \
  X(SGD)                         \
  X(Adam)                        \
  X(AdamW)                       \
  X(RMSprop)                     \
  X(Adagrad)                     \
  X(Adadelta)                    \
  X(Adamax)                      \
  X(NAdam)                       \
  X(RAdam)                       \
  X(Rprop)                       \
  X(ASGD)                        \
  X(SparseAdam)                  \
  X(Adafactor)                   \
  X(Lion)                        \
  X(LAMB)                        \
  X(LARS)                        \
  X(Muon)                        \
  X(AdamW8bit)

namespace tandem::optim {

/// A row of optimizers().
struct OptimizerRow : Component {
  const char* type;    ///< the class: "AdamW"
  bool needs_closure;  ///< step() alone does not do: it calls the loss several times
  /// `options` are those of the row.
  std::unique_ptr<Optimizer> (*make)(ParamList params, const void* options);
};
/// The row of class O with options P.
template <class O, class P>
constexpr OptimizerRow optimizer_row(const char* type, bool needs_closure = false) {
  return {{O::kAbout.name, O::kAbout.doc, O::kAbout.example, &kFieldsType<P>},
          type,
          needs_closure,
          [](ParamList params, const void* options) -> std::unique_ptr<Optimizer> {
            return std::make_unique<O>(std::move(params), *static_cast<const P*>(options));
          }};
}
/// Every optimizer by name; a program may add its own.
TD_API Registry<OptimizerRow>& optimizers();

}  // namespace tandem::optim
