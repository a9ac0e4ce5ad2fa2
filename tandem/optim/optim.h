// SPDX-License-Identifier: Apache-2.0
// All of optim.
#pragma once

#include "tandem/optim/optimizers.h"
