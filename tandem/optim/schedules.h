// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules with PyTorch's names and options. A new one is a file in schedules/,
// included and listed here; recipes and the reference pages then know it.
#pragma once

#include "tandem/optim/schedules/cosine.h"
#include "tandem/optim/schedules/cycles.h"
#include "tandem/optim/schedules/factors.h"
#include "tandem/optim/schedules/swa.h"

/// X(row) for every schedule_rows::row that has a name in recipes.
#define TD_FOR_EACH_SCHEDULE(X) \
  X(constant)                   \
  X(cosine)                     \
  X(linear)                     \
  X(step)                       \
  X(multistep)                  \
  X(exponential)                \
  X(polynomial)                 \
  X(cosine_restarts)            \
  X(onecycle)                   \
  X(cyclic)                     \
  X(noam)

namespace tandem::optim {

/// Every schedule by name; a program may add its own.
TD_API Registry<ScheduleRow>& schedules();

}  // namespace tandem::optim
