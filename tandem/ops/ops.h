// SPDX-License-Identifier: Apache-2.0
// All public tensor functions, and the call that fills the op table.
#pragma once

#include "tandem/ops/aliases.h"
#include "tandem/ops/control.h"
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/conv/fold.h"
#include "tandem/ops/conv/pool.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/index/search.h"
#include "tandem/ops/linalg/factors.h"
#include "tandem/ops/linalg/fft.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/matmul/matrix.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/nn/functional.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/nn/rnn.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/nn/update.h"
#include "tandem/ops/pointwise/exact.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/queries.h"
#include "tandem/ops/random/noise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/random/sampling.h"
#include "tandem/ops/reduce/calculus.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/reduce/scan.h"
#include "tandem/ops/reduce/statistics.h"
#include "tandem/ops/special/special.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/stacking.h"
#include "tandem/ops/view/strided.h"
#include "tandem/ops/view/view.h"
#include "tandem/ops/vision/detection.h"
#include "tandem/ops/vision/resample.h"

namespace tandem {

/// Register the rows of all families in the table. Once per process; init() calls it.
TD_API void register_all_ops();

}  // namespace tandem
