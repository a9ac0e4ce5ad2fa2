// SPDX-License-Identifier: Apache-2.0
// ScalarProgram: a row's expression with types: one SSA instruction per register, explicit
// conversions. The scalar evaluator (reference), the tile interpreter and the emitters of C and
// CUDA text all read this form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tandem/tensor/scalar.h"

namespace tandem {

class ScalarGraph;
struct InferCall;
struct KernelCall;
struct OpDef;

/// X(name, number of operands). Comparisons give b8; select takes (b8, T, T).
// clang-format off
#define TD_FOR_EACH_SCALAR_OP(X) \
  X(input, 0) X(constant, 0) X(convert, 1) X(wrap, 1) X(neg, 1) X(abs, 1) X(sign, 1) \
  X(floor, 1) X(ceil, 1) X(round, 1) X(trunc, 1) X(sqrt, 1) X(rsqrt, 1) X(exp, 1) \
  X(exp2, 1) X(expm1, 1) X(log, 1) X(log2, 1) X(log10, 1) X(log1p, 1) X(sin, 1) X(cos, 1) \
  X(tan, 1) X(asin, 1) X(acos, 1) X(atan, 1) X(sinh, 1) X(cosh, 1) X(tanh, 1) X(asinh, 1) \
  X(acosh, 1) X(atanh, 1) X(erf, 1) X(erfc, 1) X(erfinv, 1) X(sigmoid, 1) X(erfcx, 1) \
  X(ndtri, 1) X(i0e, 1) X(i1e, 1) X(lgamma, 1) X(digamma, 1) X(isnan, 1) X(isinf, 1) X(isfinite, 1) \
  X(logical_not, 1) X(bit_not, 1) X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(floor_div, 2) X(trunc_div, 2) X(remainder, 2) \
  X(fmod, 2) X(pow, 2) X(atan2, 2) X(zeta, 2) X(gammainc, 2) X(gammaincc, 2) X(max, 2) X(min, 2) X(fmax, 2) X(fmin, 2) X(eq, 2) \
  X(ne, 2) X(lt, 2) X(le, 2) X(gt, 2) X(ge, 2) X(logical_and, 2) X(logical_or, 2) \
  X(logical_xor, 2) X(bit_and, 2) X(bit_or, 2) X(bit_xor, 2) X(shl, 2) X(shr, 2) \
  X(select, 3)
// clang-format on

enum class ScalarOp : uint8_t {
#define X(name, arity) name,
  TD_FOR_EACH_SCALAR_OP(X)
#undef X
};

/// What a register holds. f16 and bf16 compute in f32, all integers in i64: `wrap` turns a register
/// into what it would be after a store and a load (rounded, or wrapped to the integer's range).
enum class Reg : uint8_t { f32, f64, i64, b8 };

constexpr Reg reg_of(DType t) {
  return t == DType::f64  ? Reg::f64
         : is_floating(t) ? Reg::f32
         : is_integral(t) ? Reg::i64
                          : Reg::b8;
}

/// Instruction k defines register k.
struct ScalarInstr {
  ScalarOp op = ScalarOp::constant;
  Reg type = Reg::f32;  ///< of the operands (of a and b of select: its values)
  Reg result = Reg::f32;
  int16_t a = -1, b = -1, c = -1;
  int16_t input = -1;         ///< of ScalarOp::input
  DType narrow = DType::i64;  ///< for ScalarOp::wrap: the dtype it is narrowed to
  Scalar imm;                 ///< of ScalarOp::constant
};

struct ScalarProgram {
  struct Out {
    int16_t reg = 0;
    DType dtype = DType::f32;  ///< as stored: rounded once to f16/bf16, wrapped to integers
  };
  std::vector<ScalarInstr> code;
  /// dtype of each input as stored; a numeric operand is passed as f64, i64 or b8, by its category.
  std::vector<DType> in;
  std::vector<Out> out;
  std::string to_string() const;
};

/// How lowering treats an input. Expressions of numbers and constants alone are computed in f64
/// (with float elements) and converted where they meet elements, once per call.
enum class InputKind : uint8_t {
  element,  ///< converted to the compute type
  number,   ///< the same for all elements; `in` tells how it is passed
  index,    ///< an i64 with elements of another type (in a reduction): stays i64
};

/// Add types: elements compute in `compute` (f16, bf16 in f32; narrow integers wrap after each op;
/// comparisons in the compute type; bool: add is or, mul is and). Output k is stored as out[k]:
/// float to integer truncates, saturates, NaN gives 0. `kinds` may be shorter than `in`.
TD_API ScalarProgram lower(const ScalarGraph& graph, std::span<const DType> in, DType compute,
                           std::span<const DType> out, std::span<const InputKind> kinds = {});

/// What the type rules need to know about an operand.
struct OperandType {
  enum Kind : uint8_t { absent, tensor, zero_dim, number } kind = tensor;
  DType dtype = DType::f32;  ///< of a number: its Scalar::dtype
};
/// The type that a pointwise row computes in.
TD_API DType compute_dtype(const OpDef& op, std::span<const OperandType> in,
                           std::span<const DType> out);
/// The row's program for such operands; made once, kept forever.
TD_API const ScalarProgram& program_of(const OpDef& op, std::span<const OperandType> in,
                                       std::span<const DType> out);
/// The same with tensors of these dtypes for all inputs.
TD_API const ScalarProgram& program_of(const OpDef& op, std::span<const DType> in,
                                       std::span<const DType> out);
TD_API const ScalarProgram& program_of(const KernelCall& call);

}  // namespace tandem
