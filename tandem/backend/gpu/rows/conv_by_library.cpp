// SPDX-License-Identifier: Apache-2.0
// The units that multiply matrices (16-bit types, f32 as tf32) want channels innermost. So what
// they compute is channels-last, and because pointwise rows, norms and pooling keep the order of
// their inputs, so are all activations behind the first convolution: only the image at the start is
// row-major. It is given to the library as it lies: with an operand in the other order cuDNN
// proposes the same engines in the same sequence, which then convert that operand and no other in
// their workspace. A conversion of our own would be the same pass over memory. Exact f32 has
// engines for row-major arrays and stays in that order.
#include "tandem/backend/gpu/rows/conv_internal.h"
#include "tandem/graph/dry_run.h"
#include "tandem/graph/precision.h"
#include "tandem/graph/run/array_walk.h"
#include "tandem/graph/run/channels_last.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::gpu {
namespace {

bool on_matrix_units(DType t) {
  return is_short_float(t) ||
         (t == DType::f32 && float32_matmul_precision() == MatmulPrecision::tf32);
}

constexpr size_t kCopyAlignment = 256;
size_t aligned(size_t bytes) {
  return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
}

// An operand as the library gets it: as it lies, or as a copy in scratch memory.
struct ConvOperand {
  Strides strides;
  bool copied = false;
  size_t at = 0;  ///< of the copy, from the start of scratch memory
};

struct ConvLibraryPlan : Plan {
  std::unique_ptr<ConvPlan> conv;  ///< nullptr: own kernels
  ConvOperand x, w, y;
};

// Dense strides for `a`. Where it is both row-major and channels-last (one channel, 1 x 1 kernels)
// it is called what the units want. Others are copied; a result cannot be.
bool place_operand(const Array& a, bool units, bool is_result, ConvOperand& o) {
  const bool last = detail::is_channels_last(a);
  if (last && (units || !a.contiguous)) {
    o.strides = detail::channels_last_strides(a.shape, a.rank);
    return true;
  }
  o.copied = !a.contiguous;
  o.strides =
      o.copied && units ? detail::channels_last_strides(a.shape, a.rank) : row_major_strides(a);
  return !o.copied || !is_result;
}

ConvProblem::Lie lie_of(const Array& a, const ConvOperand& o) {
  ConvProblem::Lie lie;
  for (int d = 0; d < a.rank; ++d) {
    lie.size[d] = a.shape[d];
    lie.stride[d] = o.strides.data()[d];
  }
  return lie;
}

bool library_problem(const KernelCall& c, ConvResult result, ConvProblem& q,
                     ConvLibraryPlan& plan) {
  const ConvArrays v = arrays_of_conv(c, result);
  if (v.x->numel == 0 || v.w->numel == 0 || v.y->numel == 0 || !is_floating(v.y->dtype)) {
    return false;
  }
  const bool units = on_matrix_units(v.y->dtype);
  if (!place_operand(*v.x, units, result == ConvResult::x, plan.x) ||
      !place_operand(*v.w, units, result == ConvResult::w, plan.w) ||
      !place_operand(*v.y, units, result == ConvResult::y, plan.y)) {
    return false;
  }
  const auto& a = c.get_attrs<ConvAttrs>();
  q.result = result;
  q.dtype = v.y->dtype;
  q.tf32 = float32_matmul_precision() == MatmulPrecision::tf32;
  q.bias = v.bias != nullptr;
  q.spatial = a.stride.rank();
  q.x = lie_of(*v.x, plan.x);
  q.w = lie_of(*v.w, plan.w);
  q.y = lie_of(*v.y, plan.y);
  for (int i = 0; i < q.spatial; ++i) {
    q.by[i] = a.stride[i].value();
    q.dilation[i] = a.dilation[i].value();
    q.padding[i] = a.padding[i].value();
    q.padding_end[i] = a.padding_end[i].value();
  }
  return true;
}

ConvLibrary* library_of(const KernelCall& c) {
  static std::once_flag said;
  Engine& e = engine_of(c.device);
  Status status;
  ConvLibrary* library = e.context().conv_library(status);
  if (!library) say_library_is_off(said, e, "convolutions", status);
  return library;
}

}  // namespace

ConvArrays arrays_of_conv(const KernelCall& c, ConvResult result) {
  if (result == ConvResult::x) return {&c.out[0], &c.in[1], &c.in[0]};
  if (result == ConvResult::w) return {&c.in[0], &c.out[0], &c.in[1]};
  const bool bias = c.n_in > 2 && c.in[2].present();
  return {&c.in[0], &c.in[1], &c.out[0], bias ? &c.in[2] : nullptr};
}

bool conv_layout(const KernelCall& c, int output, Strides& strides) {
  const Array& y = c.out[output];
  if (!on_matrix_units(y.dtype) || is_dry_run_of_any_device() || !library_of(c)) return false;
  strides = detail::channels_last_strides(y.shape, y.rank);
  return true;
}

std::shared_ptr<const Plan> plan_conv(const KernelCall& c, ConvResult result) {
  auto plan = std::make_shared<ConvLibraryPlan>();
  ConvLibrary* library = library_of(c);
  ConvProblem problem;
  if (!library || !library_problem(c, result, problem, *plan)) return plan;
  const Status status = library->plan(problem, plan->conv);
  if (status.code() == Code::unavailable) return plan;  // the library does not take it
  engine_of(c.device).check(status);
  const ConvArrays v = arrays_of_conv(c, result);
  plan->workspace = aligned(plan->conv->workspace);
  for (auto [o, a] : {std::pair{&plan->x, v.x}, {&plan->w, v.w}, {&plan->y, v.y}}) {
    if (!o->copied) continue;
    o->at = plan->workspace;
    plan->workspace += aligned(static_cast<size_t>(a->numel) * size_of(a->dtype));
  }
  return plan;
}

bool run_conv_by_library(const KernelCall& c, ConvResult result) {
  const auto& plan = *static_cast<const ConvLibraryPlan*>(c.plan);
  if (!plan.conv) return false;
  const ConvArrays v = arrays_of_conv(c, result);
  const auto place = [&](const Array& a, const ConvOperand& o) {
    return o.copied ? address_of(c.scratch) + o.at : address_of(a.data);
  };
  const ConvOperands at{place(*v.x, plan.x), place(*v.w, plan.w), place(*v.y, plan.y),
                        v.bias ? address_of(v.bias->data) : 0, address_of(c.scratch)};
  if ((at.x | at.w | at.y | at.bias) % kConvAlignment != 0) return false;
  if (plan.x.copied) copy_as(c, *v.x, at.x, plan.x.strides);
  if (plan.w.copied) copy_as(c, *v.w, at.w, plan.w.strides);
  if (plan.y.copied) copy_as(c, *v.y, at.y, plan.y.strides);
  static constexpr const char* kNames[] = {"cudnn conv", "cudnn conv_backward_input",
                                           "cudnn conv_backward_weight"};
  Engine& e = engine_of(c.device);
  const StreamRef stream = e.stream(c.stream);
  e.watched(kNames[static_cast<int>(result)], stream, [&] { e.check(plan.conv->run(at, stream)); });
  return true;
}

}  // namespace tandem::gpu
