// SPDX-License-Identifier: Apache-2.0
// ONNX's backend tests: folders with a model and recorded inputs and outputs, compared as ONNX's
// own runner does (rtol 1e-3, at least 1/64 for bfloat16, atol 1e-7 unless a data.json next to the
// model says otherwise).
#pragma once

#include <string>
#include <vector>

#include "tandem/onnx/runner.h"

namespace tandem::onnx {

struct OnnxCase {
  std::string name;   ///< of the folder, or of the model file
  std::string model;  ///< path of the model
  /// Folders of input_i.pb and output_i.pb; empty: the model's name with "_output_i.pb", and inputs
  /// that count from 0 to 1.
  std::vector<std::string> data_sets;
  double rtol = 1e-3, atol = 1e-7;
  bool light = false;  ///< a full-size net: a model file with its outputs in the same folder
};

/// ONNX's version that the models below `folder` come from: the text of its file `version`, or "".
TD_API std::string onnx_suite_version(const std::string& folder);
/// All cases below `folder` whose name contains `filter`, sorted by path.
TD_API std::vector<OnnxCase> find_onnx_cases(const std::string& folder,
                                             const std::string& filter = "");
struct OnnxVerdict {
  std::string differs;  ///< "": every output agrees
  /// Of a compiled run: which way the model ran, and why not as one program.
  OnnxWay way = OnnxWay::eager;
  std::string reason = "";
  bool passed() const { return differs.empty(); }
};
/// Run one op by op, or `compiled` as OnnxRunner runs it: twice, since parts are compiled when they
/// come again. Never throws.
TD_API OnnxVerdict run_onnx_case(const OnnxCase& c, bool compiled = false);
/// The difference between two values, or "".
TD_API std::string compare_onnx_values(const OnnxValue& got, const OnnxValue& want, double rtol,
                                       double atol);

}  // namespace tandem::onnx
