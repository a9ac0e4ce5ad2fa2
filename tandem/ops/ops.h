// SPDX-License-Identifier: Apache-2.0
// All public functions on tensors, and the call that fills the op table.
#pragma once

#include "tandem/ops/attention.h"
#include "tandem/ops/control.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/create.h"
#include "tandem/ops/detection.h"
#include "tandem/ops/fft.h"
#include "tandem/ops/fold.h"
#include "tandem/ops/index.h"
#include "tandem/ops/linalg.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/matrix.h"
#include "tandem/ops/norm.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/pool.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/resample.h"
#include "tandem/ops/rnn.h"
#include "tandem/ops/sampling.h"
#include "tandem/ops/scan.h"
#include "tandem/ops/scatter.h"
#include "tandem/ops/search.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/statistics.h"
#include "tandem/ops/update.h"
#include "tandem/ops/view.h"

namespace tandem {

/// Put the rows of all families into the table. Once per process; init() calls it.
TD_API void register_all_ops();

}  // namespace tandem
