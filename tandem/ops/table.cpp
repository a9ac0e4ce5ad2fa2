// SPDX-License-Identifier: Apache-2.0
// Registers the rows of this room, family by family. Control flow, whose derivatives need room
// grad, is registered by init().
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"
#include "tandem/ops/reduce/order_statistics_internal.h"

namespace tandem {

void register_all_ops() {
  using Rows = std::span<const OpDef* const> (*)();
  constexpr Rows kFamilies[] = {
      pointwise_rows,       reduce_rows,   view_rows,      index_rows,     create_rows,
      random_rows,          matmul_rows,   conv_rows,      pool_rows,      norm_rows,
      softmax_rows,         loss_rows,     attention_rows, rnn_rows,       update_rows,
      control_rows,         scan_rows,     linalg_rows,    search_rows,    scatter_rows,
      matrix_rows,          resample_rows, fold_rows,      detection_rows, fft_rows,
      sampling_rows,        exact_rows,    factor_rows,    integer_rows,   quantize_rows,
      order_statistic_rows,
  };
  for (Rows rows : kFamilies)
    for (const OpDef* op : rows()) detail::register_library_op(*op);
}

}  // namespace tandem
