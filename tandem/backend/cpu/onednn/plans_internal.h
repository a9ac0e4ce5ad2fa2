// SPDX-License-Identifier: Apache-2.0
// Plans made of oneDNN primitives: a list of steps (copy, reorder, primitive) over a call's arrays
// and its scratch. Plans are immutable and shared; oneDNN memory objects are not, so each thread
// keeps its own, by the plan's id. Only the files of this folder include it.
#pragma once

#include <vector>

#include "tandem/backend/cpu/onednn/library_internal.h"
#include "tandem/graph/kernel.h"

namespace tandem::detail::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

/// Bytes that a step reads or writes: an input, an output, or a part of the scratch.
struct Place {
  enum Kind : uint8_t { input, output, scratch } kind = scratch;
  int index = 0;
  size_t offset = 0;  ///< in bytes
};
/// A place together with the layout of its bytes.
struct Data {
  Place place;
  Desc desc;
};

struct Step {
  struct Arg {
    int id;
    Data data;
  };
  dnnl::primitive primitive;  ///< empty: a plain copy of an input into scratch
  std::vector<Arg> args;
};

struct DnnlPlan : Plan {
  uint64_t id = 0;
  int threads = 1;      ///< of oneDNN's own
  bool usable = false;  ///< false: oneDNN has nothing good for this call, use the reference
  std::vector<Step> steps;
};

/// Collects the steps of a plan. Throws dnnl::error when oneDNN rejects one.
class PlanBuilder {
 public:
  explicit PlanBuilder(int threads);

  static Type type_of(DType t);
  /// The array's layout, with dims merged or split as the caller says.
  static Desc desc_of(DType t, const Dims& dims, const Dims& strides);
  Data input(int i, const Desc& desc) const { return {{Place::input, i, 0}, desc}; }
  Data output(int i, const Desc& desc) const { return {{Place::output, i, 0}, desc}; }
  Data temporary(const Desc& desc);
  /// Input i copied densely into scratch, in the order of `desc`'s dims (its strides must be those
  /// of a dense array).
  Data copied(int i, const Desc& desc);
  /// `d` itself if it has the layout `want`, else reordered into scratch.
  Data as(const Data& d, const Desc& want);
  void reorder(const Data& from, const Data& to);
  /// Adds a primitive with its scratchpad. Throws dnnl::error if it is a reference implementation
  /// of a call with more than a few operations.
  void add(const dnnl::primitive_desc_base& pd, const dnnl::primitive& p,
           std::vector<Step::Arg> args, double operations);
  std::shared_ptr<const Plan> finish();

 private:
  std::shared_ptr<DnnlPlan> plan_;
};

const dnnl::engine& engine();
/// The attributes of every primitive: the scratchpad is user-provided.
dnnl::primitive_attr user_scratchpad();
/// The plan that `make(builder)` describes, or an unusable one if oneDNN rejects it. More than one
/// thread only where a call cannot be split: oneDNN's threads spin while parallel_for's work.
template <class F>
std::shared_ptr<const Plan> plan_or_refuse(F&& make, int threads = 1) {
  try {
    PlanBuilder b(threads);
    make(b);
    return b.finish();
  } catch (const dnnl::error&) {
    return std::make_shared<DnnlPlan>();
  }
}
/// Run the plan of `call`, or the row's reference if it is not usable.
void run_plan(const KernelCall& call);
/// Whether this machine's oneDNN can compute in `t`.
bool computes(DType t);

}  // namespace tandem::detail::onednn

namespace tandem::detail {
void register_onednn_conv_kernels();
void register_onednn_conv_weight_kernels();
void register_onednn_matmul_kernels();
}  // namespace tandem::detail
