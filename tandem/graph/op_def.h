// SPDX-License-Identifier: Apache-2.0
// OpDef: one row per op, and the table of all rows. A row is constinit data made by constexpr
// builders; unset columns come from its family. Everything that needs information on an op (tape,
// trace, vmap, fusion, exporters, docs, tests) asks the row.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/graph/attrs.h"
#include "tandem/graph/kernel.h"
#include "tandem/graph/spec.h"

namespace tandem {

class E;               // scalar_expr.h
class ScalarGraph;     // scalar_expr.h
struct DerivedRow;     // derivative.h
struct ProgramEntry;   // scalar_program.cpp
struct InferCall;      // infer.h
struct VjpCall;        // vjp.h
struct BatchCall;      // batch.h
struct BodyCall;       // infer.h
struct ScalarProgram;  // scalar_program.h

enum class Family : uint8_t {
  pointwise,    ///< an expression per element, with broadcasting
  reduce,       ///< init, step, combine, finish over dims
  scan,         ///< the same columns, every prefix
  view,         ///< the input's bytes with another shape and strides
  contraction,  ///< backed by a library or a dedicated kernel
  composite,    ///< a body of other ops
  index,        ///< moves elements by index tensors
  create,       ///< no tensor inputs
  control,      ///< inputs of a graph, cells, calls
};
/// How the result dtype follows from input dtypes.
enum class Types : uint8_t {
  arith,     ///< promote; integers wrap; bool + bool is or
  floating,  ///< promote, integers and bool become the default float
  compare,   ///< promote inputs, result bool
  logical,   ///< inputs tested against zero, result bool
  bits,      ///< integers and bool only
  cast,      ///< result from the attribute
  where,     ///< (bool, T, T)
  same,      ///< all tensor inputs of one dtype, result too
  custom,    ///< decided by infer
};
enum class Autocast : uint8_t { none, low, f32_inside, f32_io, promote };

enum OpFlags : uint32_t {
  kEffect = 1,             ///< keeps program order, survives dead code removal
  kDataSized = 2,          ///< result size depends on values
  kRandom = 4,             ///< draws from the generator
  kNotDifferentiable = 8,  ///< no derivative exists (argmax): the gradient stops, silently
  kZeroGrad = 16,          ///< derivative is zero almost everywhere (floor, sign)
  kNotDeterministic = 32,  ///< in f16 and bf16 bits may change with the thread count
  kNoBatch = 64,           ///< vmap = loop does not hold by design (random)
  kReuseFirst = 128,       ///< output 0 may get input 0's buffer (the kernel sees equal pointers)
  kWeightForm = 256,       ///< rearranges a weight: best run once, as late as possible
  kConvolution = 512,      ///< a convolution or a derivative of one; the attributes are ConvAttrs
  kBatchNorm = 1024,       ///< normalises over the batch
  kSetsDevice = 2048,      ///< infer says on which device the output lies (to_device)
  kMoved = 4096,           ///< its reference touches elements by ops/view/strided_copy alone
  kPassesSame = 8192,      ///< where the result has the Spec of the input, it has its values too
  kFollowsLayout = 16384,  ///< images: its kernels read and write any order of dimensions
  kPackedMatmul = 32768,   ///< over a weight in packed form; takes epilogues, has PackedAttrs
  kPackedConv = 65536,     ///< the same for convolutions
  kPackedSums = 131072,    ///< the same for sums of integers, which take a bias
  kChannelsLast = 262144,  ///< its images have their channels last, whatever is around it
  kWaits = 524288,         ///< needs what a row before has started: it runs as late as it can
  kStartsAhead = 1048576,  ///< starts work on values of cells: it runs one such wait ahead
};

using InferFn = void (*)(InferCall&);
using VjpFn = void (*)(VjpCall&);
using BatchFn = void (*)(BatchCall&);
using BodyFn = void (*)(BodyCall&);
using ReferenceFn = void (*)(const KernelCall&);
using CostFn = double (*)(const InferCall&);
/// Strides and element offset of a view of an array; false: it needs a copy.
using ViewFn = bool (*)(const void* attrs, const Shape& in, const Strides& in_strides,
                        const Shape& out, Strides& out_strides, int64_t& offset);
/// out[i] = expression of in[...]; y are the outputs, g the incoming gradient, d[i] = gradient of
/// input i.
using ExprFn = void (*)(const E* in, E* out);
using ExprGradFn = void (*)(const E* in, const E* y, const E& g, E* d);

/// A reduction or scan as expressions over a tuple of states (semantics 5.2). A state is of the
/// compute type ('T'), an i64 ('I'), an f64 ('D') or wide ('W': f64 for floats, else as 'T').
struct ReduceExpr {
  const char* states = "T";
  void (*init)(E* s) = nullptr;
  void (*step)(const E* s, const E& x, const E& index, E* out) = nullptr;
  void (*combine)(const E* a, const E* b, E* out) = nullptr;
  void (*finish)(const E* s, const E& n, const E* scalars, E* out) = nullptr;
};

inline constexpr int kMaxOpIns = 16, kMaxOpOuts = 4;

/// For a reference whose loops take tensors of every dtype.
inline constexpr DType kEveryDType[] = {
#define X(name, type, text) DType::name,
    TD_FOR_EACH_DTYPE(X)
#undef X
};

/// A fused loop for equal-shaped dense f32 arrays: the eager fast path of one-instruction rows.
using FastF32 = void (*)(float* out, const float* a, const float* b, int64_t n);

/// State that the running process adds to a row.
struct OpRuntime {
  struct Entry {
    Kernel kernel;
    const Entry* older;
  };
  const Entry* kernels[kDeviceKinds] = {};
  FastF32 fast_f32 = nullptr;
  std::atomic<const ScalarGraph*> expr{nullptr};              ///< scalar_expr.h: expr_of
  std::atomic<const DerivedRow*> derivative[kMaxOpIns] = {};  ///< derivative.h: derived_row
  std::atomic<const ScalarProgram*> program{nullptr};         ///< of all-f32 tensors
  std::atomic<const ProgramEntry*> programs{nullptr};         ///< of other types: program_of
  std::atomic<uint64_t> saves{kSavesUnknown};  ///< of a pointwise row: ins | outs << 32
  int id = -1;
  static constexpr uint64_t kSavesUnknown = ~uint64_t{0};
};

struct OpDef {
  const char* name = "";
  Family family = Family::composite;
  Types types = Types::custom;
  Autocast autocast_class = Autocast::none;
  uint8_t n_in = 0, n_out = 1;
  bool variadic = false;  ///< the last input repeats
  uint32_t flags = 0;
  /// "x", "b?" optional, "xs*" variadic, "lo$" a number (may be a 0-d tensor)
  const char* in_names[kMaxOpIns] = {};
  /// "y", "lse!" computed only when a gradient needs it and never exposed
  const char* out_names[kMaxOpOuts] = {"y"};
  uint32_t saves_in = 0, saves_out = 0;
  const AttrsType* attrs = nullptr;
  InferFn infer_fn = nullptr;
  VjpFn vjp_fn = nullptr;
  BatchFn batch_fn = nullptr;
  BodyFn body_fn = nullptr;
  ReferenceFn reference_fn = nullptr;
  uint32_t reference_dtypes = 0;  ///< bit per dtype that its loops take; 0: it looks by itself
  CostFn flops_fn = nullptr, bytes_fn = nullptr;
  ViewFn view_fn = nullptr;
  ExprFn expr_fn = nullptr;
  ExprGradFn expr_grad_fn = nullptr;
  const ReduceExpr* reduce_expr = nullptr;
  const char* onnx_name = nullptr;
  const char* doc_text = nullptr;
  /// Error texts for codes 1, 2, ... reported by a kernel; `{}` is the value.
  const char* error_texts[3] = {};
  mutable OpRuntime* runtime = nullptr;

  // ---- builders
  static constexpr char last_char(const char* s) {
    char c = 0;
    while (*s) c = *s++;
    return c;
  }
  template <class F>
  constexpr OpDef with(F OpDef::*member, F value) const {
    OpDef d = *this;
    d.*member = value;
    return d;
  }
  constexpr OpDef inputs(std::initializer_list<const char*> names) const {
    OpDef d = *this;
    d.n_in = 0;
    for (const char* n : names) {
      d.in_names[d.n_in++] = n;
      d.variadic = last_char(n) == '*';
    }
    return d;
  }
  constexpr OpDef outputs(std::initializer_list<const char*> names) const {
    OpDef d = *this;
    d.n_out = 0;
    for (const char* n : names) d.out_names[d.n_out++] = n;
    return d;
  }
  constexpr OpDef infer(InferFn f) const { return with(&OpDef::infer_fn, f); }
  /// The derivative; `ins`/`outs` tell which inputs and outputs it reads (bit i = number i).
  constexpr OpDef vjp(VjpFn f, uint32_t ins = 0, uint32_t outs = 0) const {
    OpDef d = with(&OpDef::vjp_fn, f);
    d.saves_in = ins;
    d.saves_out = outs;
    return d;
  }
  constexpr OpDef batch(BatchFn f) const { return with(&OpDef::batch_fn, f); }
  constexpr OpDef body(BodyFn f) const { return with(&OpDef::body_fn, f); }
  constexpr OpDef reference(ReferenceFn f) const { return with(&OpDef::reference_fn, f); }
  /// The same with the dtypes that its loops read and write. Where f32 is one of them, f16 and bf16
  /// go through f32 copies; a call with any other dtype throws.
  template <size_t n>
  constexpr OpDef reference(ReferenceFn f, const DType (&dtypes)[n]) const {
    OpDef d = reference(f);
    for (DType t : dtypes) d.reference_dtypes |= 1u << static_cast<int>(t);
    return d;
  }
  constexpr OpDef flops(CostFn f) const { return with(&OpDef::flops_fn, f); }
  constexpr OpDef bytes(CostFn f) const { return with(&OpDef::bytes_fn, f); }
  constexpr OpDef view(ViewFn f) const { return with(&OpDef::view_fn, f); }
  constexpr OpDef expr(ExprFn f) const { return with(&OpDef::expr_fn, f); }
  constexpr OpDef expr_grad(ExprGradFn f) const { return with(&OpDef::expr_grad_fn, f); }
  constexpr OpDef reduce(const ReduceExpr* r) const { return with(&OpDef::reduce_expr, r); }
  constexpr OpDef onnx(const char* n) const { return with(&OpDef::onnx_name, n); }
  constexpr OpDef doc(const char* t) const { return with(&OpDef::doc_text, t); }
  constexpr OpDef type_rule(Types t) const { return with(&OpDef::types, t); }
  constexpr OpDef autocast(Autocast a) const { return with(&OpDef::autocast_class, a); }
  constexpr OpDef flag(uint32_t f) const { return with(&OpDef::flags, flags | f); }
  constexpr OpDef errors(std::initializer_list<const char*> texts) const {
    OpDef d = *this;
    int i = 0;
    for (const char* t : texts) d.error_texts[i++] = t;
    return d;
  }

  bool has(OpFlags f) const { return flags & f; }
  /// Output i is hidden ("lse!").
  constexpr bool hidden(int i) const { return last_char(out_names[i]) == '!'; }
  constexpr bool optional(int i) const { return last_char(in_names[i]) == '?'; }
  /// The number of outputs that a user sees.
  constexpr int shown() const {
    int n = 0;
    while (n < n_out && !hidden(n)) ++n;
    return n;
  }
  bool differentiable() const { return vjp_fn || expr_fn || body_fn || (flags & kZeroGrad); }
};

// ---- families: the first word of a row
constexpr OpDef make_row(const char* name, Family family, Types types,
                         std::initializer_list<const char*> ins, const AttrsType* attrs) {
  OpDef d;
  d.name = name;
  d.family = family;
  d.types = types;
  d.attrs = attrs;
  return d.inputs(ins);
}
using Names = std::initializer_list<const char*>;
constexpr OpDef contraction(const char* name, Names in, const AttrsType* a = nullptr) {
  return make_row(name, Family::contraction, Types::same, in, a);
}
constexpr OpDef composite(const char* name, Names in, const AttrsType* a, BodyFn body) {
  return make_row(name, Family::composite, Types::custom, in, a).body(body);
}
constexpr OpDef view_row(const char* name, Names in, const AttrsType* a, ViewFn view) {
  return make_row(name, Family::view, Types::same, in, a).view(view);
}
constexpr OpDef index_row(const char* name, Names in, const AttrsType* a = nullptr) {
  return make_row(name, Family::index, Types::custom, in, a);
}
constexpr OpDef create_row(const char* name, const AttrsType* a) {
  return make_row(name, Family::create, Types::custom, {}, a);
}
constexpr OpDef control_row(const char* name, Names in, const AttrsType* a = nullptr) {
  return make_row(name, Family::control, Types::custom, in, a);
}

// ---- the table
// Add a row at run time (it must outlive the program); throws Value if the name is taken, or if it
// has a reference that does not say which dtypes its loops take.
TD_API void register_op(const OpDef& op);
namespace detail {
/// Add a row of the library, whose shape rule keeps out what its reference does not take.
void register_library_op(const OpDef& op);
}  // namespace detail
/// All rows in order of registration (derived rows of pointwise ops are not listed).
TD_API std::span<const OpDef* const> all_ops();
/// The row of that name, or nullptr.
TD_API const OpDef* find_op(std::string_view name);
/// The row's runtime state; registers unregistered rows (derived rows).
TD_API OpRuntime& runtime_of(const OpDef& op);

/// The kernel for every row of a family that has none of its own.
TD_API void register_family_kernel(DeviceKind device, Family family, const Kernel& kernel);
/// Sets the provider of fast loops for pointwise rows (nullptr result: none).
TD_API void set_fast_f32_provider(FastF32 (*provider)(const OpDef&));
/// The kernel of such a device that takes this very call, or nullptr. How a call is run where there
/// is none, choose_kernel() says (graph/run/kernel_choice.h).
TD_API const Kernel* find_kernel(const KernelCall& call, DeviceKind device);
/// Has the row a kernel of its own on such a device?
TD_API bool has_own_kernel(const OpDef& op, Device device);

}  // namespace tandem
