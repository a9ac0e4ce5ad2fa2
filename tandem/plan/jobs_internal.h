// SPDX-License-Identifier: Apache-2.0
// What the kinds of jobs share. Not installed.
#pragma once

#include "tandem/plan/jobs.h"

namespace tandem::plan {

/// Cross entropy of logits [n, c], [n, c, h, w] or [n, s, c] and classes of the other dimensions,
/// as `o.framework` has it.
Tensor class_loss(Tensor logits, const Tensor& target, const JobOptions& o);
/// An ONNX file: its graph forward, and with gradients by its weights and a loss after it.
Job onnx_job(const std::string& path, const JobOptions& o);

}  // namespace tandem::plan
