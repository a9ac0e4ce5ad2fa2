// SPDX-License-Identifier: Apache-2.0
// What a job asks of a machine, from a dry run of the real program: tracer, passes, allocator and
// optimizer run, kernels do not. Every op with its FLOPs and bytes as the rows' cost columns state
// them, and memory by category over the step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/graph/cell.h"
#include "tandem/ops/nn/attention_form.h"
#include "tandem/plan/memory/step_memory.h"

namespace tandem::plan {

enum class Precision : uint8_t {
  f32,
  tf32,       ///< f32 values, matmuls in tf32: the same memory as f32
  amp_bf16,   ///< f32 weights, matmuls in bf16 (autocast)
  amp_f16,    ///< f32 weights, matmuls in f16
  pure_bf16,  ///< weights, gradients and optimizer state in bf16
  pure_f16,   ///< ... in f16: what serves where there is no bf16
  /// Everything computes in bf16 from a bf16 copy of f32 weights; gradients and optimizer state in
  /// f32: FSDP's MixedPrecision(param_dtype=bf16), DeepSpeed's bf16, MosaicML's PURE.
  mixed_bf16,
};
/// "f32", "tf32", "bf16" (amp), "f16" (amp), "pure-bf16", "pure-f16", "mixed-bf16". Throws Value
/// naming the nearest.
TD_API Precision precision_of(const std::string& name);
TD_API const char* to_string(Precision p);
/// Matmuls in 16 bits, weights and the rest in f32: autocast.
inline bool is_amp(Precision p) { return p == Precision::amp_bf16 || p == Precision::amp_f16; }
/// What its matmuls are made of: "f32", "tf32", "bf16" or "f16", as Gpu::peak() expects it.
TD_API const char* matmul_kind(Precision p);

/// Whose training step is planned: this library's, or the same model in PyTorch, whose loss is two
/// rows that keep their results, and whose caching allocator is simulated.
enum class Framework : uint8_t { tandem, pytorch };
/// "tandem", "pytorch". Throws Value naming the nearest.
TD_API Framework framework_of(const std::string& name);
TD_API const char* to_string(Framework f);
/// "auto" (as the framework's own attention), "fused", "composed".
TD_API AttentionForm attention_form_of(const std::string& name);
TD_API const char* to_string(AttentionForm f);

/// A model ready to step, made inside a dry run (or outside, to measure it).
struct JobModel {
  std::vector<Param> parameters;
  std::vector<Buffer> buffers;
  std::vector<Tensor> inputs;  ///< of one batch; the last ones are the targets
  std::function<Tensor(const std::vector<Tensor>&)> loss;     ///< empty: it cannot be trained
  std::function<Tensor(const std::vector<Tensor>&)> forward;  ///< of the same inputs
  std::function<void(DType)> to;                              ///< convert weights; empty: it cannot
  std::function<void(bool)> train;
};
/// Something to plan.
struct Job {
  std::string name;
  std::string unit = "samples";    ///< what throughput counts: "images", "tokens"
  double units_per_sample = 1;     ///< tokens of a sequence
  int64_t transformer_layers = 0;  ///< of equal blocks, 0: not known; for recompute by blocks
  int64_t width = 0;               ///< numbers that go from block to block for each unit
  double attention_dropout = 0;    ///< of attention's weights, where attention is written out
  double sample_bytes = 0;         ///< one sample as it lies on disk
  double decode_seconds = 0;       ///< of one core for one sample; 0: nothing to decode
  bool files = false;              ///< each sample is a file of its own
  std::string sample_from;         ///< where the two come from
  std::function<std::shared_ptr<JobModel>(int64_t batch)> make;
};

struct WorkOptions {
  int64_t batch = 1;
  bool compiled = true;
  bool training = true;
  Precision precision = Precision::f32;
  std::string optimizer = "AdamW";
  /// The step takes the norm over all gradients, to clip by it or to see that it is finite: all of
  /// them are alive at once.
  bool clip_norm = false;
  bool this_backend = false;  ///< DryRunOptions::this_backend: true for plans of this machine
  size_t memory_limit = 0;    ///< CompileOptions::memory_limit
  Framework framework = Framework::tandem;
  AttentionForm attention = AttentionForm::usual;
  bool keep_gradients = false;  ///< eager: gradients of the step before are there until this one's
};

/// One op, or one step of the compiled program.
struct Work {
  std::string name;
  uint32_t scope = 0;  ///< layer, see scope_path()
  double flops = 0, bytes = 0;
  DType dtype = DType::f32;  ///< of its result
  bool matrix = false;       ///< matmuls, convolutions, attention: what matrix units do
  bool convolution = false;  ///< or a derivative of one
  bool depthwise = false;    ///< a convolution whose filters see one channel each
  bool contraction = false;  ///< a matmul of its first two inputs, or a convolution
  bool winograd = false;     ///< a convolution of 3 x 3 filters, one image point after the other
  bool attention = false;    ///< attention in one kernel
  bool backward = false;     ///< its derivatives
  bool batch_norm = false;   ///< normalises over the batch
  uint8_t phase = 0;         ///< Phase; of a compiled step: update, or build for all else
  std::string kind;          ///< the row's name, "loop" for pointwise work and fused loops
  double sizes[3] = {};      ///< elements of its first two inputs and of its result
  double seconds = 0;        ///< measured, of profile_steps(); 0 in a dry run
};

/// Matmuls and attention within the blocks of a forward pass: bytes of their results and FLOPs.
struct Results {
  double bytes = 0, flops = 0;
  void add(const Results& r) {
    bytes += r.bytes;
    flops += r.flops;
  }
};

struct Workload {
  std::string model;
  WorkOptions options;
  std::string unit;
  double units = 0;  ///< of a batch: samples or tokens
  double parameters = 0;
  std::vector<int64_t> sizes;  ///< elements of each parameter
  double blocks = 0;           ///< equal blocks of the model, 0: not known
  double weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  std::vector<Work> work;     ///< of one step
  StepMemory memory;          ///< bytes by category, at its peak and over the step
  double boundary_bytes = 0;  ///< what goes from one block to the next; 0: not known
  double block_weights = 0;   ///< bytes of the weights in all blocks
  Results matmuls;            ///< of all matmuls and attention in blocks
  Results half_matmuls;       ///< of attention and every second matmul of a block
  double forward_flops = 0;
  double reserved = 0;  ///< of PyTorch's caching allocator at most, in eager mode; 0: not known
  double reserved_least = 0;  ///< the same on a card that has no more, see CachingAllocator
  double host_peak = 0;  ///< as this machine's allocator would count it, headers and rounding too
  double rounding = 0;   ///< host_peak less the tensors that are alive then
  double plan_seconds = 0;  ///< what the dry run took

  double flops() const;
  double bytes() const;
  /// FLOPs of the forward part, of everything, by matmuls only.
  double matrix_flops() const;
};

/// Dry-run a job. Throws Value for an optimizer that is none (with the nearest), Unsupported for
/// training what has no loss, and what the model throws.
TD_API Workload dry_run(const Job& job, const WorkOptions& options);
/// The names that `optimizer` may have.
TD_API std::vector<std::string> optimizer_names();

/// Times of real steps are processor time where Tandem runs with one thread (others who use the
/// machine hardly change it), else the time that passes.

/// Run the same steps for real and give the allocator's peak above the start and the shortest and
/// median seconds of a step; for tests and for calibration.
struct Measured {
  double peak_bytes = 0, seconds = 0, median = 0;
};
TD_API Measured measure(const Job& job, const WorkOptions& options, int steps = 3);
/// Real steps, kernel by kernel: each with the shortest of its times, which reach from the end of
/// the kernel before to its own, so that they add up to the step. The shortest, because others who
/// use the machine only ever add to them.
struct ProfiledStep {
  std::vector<Work> work;
  double outside = 0;  ///< seconds before the first and after the last
  double seconds = 0;  ///< shortest of whole steps without the profiler, run in turns with profiled
                       ///< ones; the kernels' times are scaled to it
};
TD_API ProfiledStep profile_steps(const Job& job, const WorkOptions& options, int steps = 5);

}  // namespace tandem::plan
