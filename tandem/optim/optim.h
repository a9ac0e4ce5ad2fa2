// SPDX-License-Identifier: Apache-2.0
// All of optim.
#pragma once

#include "tandem/optim/averaged.h"
#include "tandem/optim/combined_schedules.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/optim/optimizers.h"
