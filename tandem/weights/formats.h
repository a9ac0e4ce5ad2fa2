// SPDX-License-Identifier: Apache-2.0
// The formats of weights files. A new one is a file in formats/, included and listed here;
// load_weights(), save_weights() and the tool then know it.
#pragma once

#include "tandem/weights/format_row.h"

namespace tandem::weights {

namespace format_rows {
extern TD_API const WeightsFormat torch, keras, npz, safetensors_index, safetensors, tf_checkpoint;
}  // namespace format_rows

/// X(row) for every format_rows::row, in the order in which a file's content is tried.
#define TD_FOR_EACH_WEIGHTS_FORMAT(X) \
  X(torch)                            \
  X(keras)                            \
  X(npz)                              \
  X(safetensors_index)                \
  X(tf_checkpoint)                    \
  X(safetensors)

/// Every format; a program may add its own, which is tried last.
TD_API Registry<WeightsFormat>& weights_formats();

}  // namespace tandem::weights
