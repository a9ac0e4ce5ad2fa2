// SPDX-License-Identifier: Apache-2.0
// Control flow in a trace: If, Loop and Scan as cond, while_loop and scan of the grad room.
#pragma once

#include <vector>

#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

struct LoopCall {
  const OnnxGraph& body;
  std::vector<OnnxValue> values;  ///< carried from step to step
  size_t outs;                    ///< results that are stacked over the steps

  /// The inputs of the body in step `i`, whose condition holds.
  std::vector<OnnxValue> step(OnnxValue i, const std::vector<OnnxValue>& now) const;
};
struct ScanCall {
  const OnnxGraph& body;
  size_t states, scans, outs;
  std::vector<int64_t> in_axes, in_reverse, out_axes, out_reverse;
};

/// An int64 scalar that nodes may read in a trace, too.
OnnxValue known_number(int64_t v);

/// The node as a cond. False where its branches give no tensors of equal types and shapes, or where
/// its condition is better made known (ReadProbe): the caller reads the condition.
bool if_as_cond(OnnxCall& c);
/// The loop as steps one after the other (`by_steps`), a scan or a while_loop, whichever the trace
/// can hold. False: none; the caller reads what it needs, or fails.
bool loop_in_trace(OnnxCall& c, const LoopCall& l, void (*by_steps)(OnnxCall&, const LoopCall&));
/// A long Scan as a scan. False: the caller unrolls it.
bool scan_in_trace(OnnxCall& c, const ScanCall& s);

}  // namespace tandem::onnx
