// SPDX-License-Identifier: Apache-2.0
// The table of precompiled vector loops that tile programs are made of: one loop per scalar op,
// register type and operand form. One source text (tile_kernels.inc) is compiled three times, for
// the baseline, AVX2 and AVX-512; without FMA contraction all three give the same bits.
#pragma once

#include <cstdint>

#include "tandem/graph/expression/scalar_program.h"

namespace tandem::codegen {

/// out[i] = op(a[i], b[i], c[i], d[i]) for i < n. `out` may be an operand that has the same element
/// size, otherwise nothing overlaps. An operand that is "one value" points to a single element.
using TileFn = void (*)(void* out, const void* a, const void* b, const void* c, const void* d,
                        int64_t n);
/// lanes[i % 64] = op(lanes[i % 64], x[i]) for i < n; lanes are 64 values. Four elements of a lane
/// are combined first, as (x0 x1)(x2 x3), while there are 256.
using LanesFn = void (*)(void* lanes, const void* x, int64_t n);
/// out[r] = lanes and tree of row r: n elements at x + r * stride, lanes starting at init[0].
using RowsFn = void (*)(void* out, const void* x, int64_t stride, int64_t rows, int64_t n,
                        const void* init);
/// acc[i] = op(acc[i], all x[i + k * stride]): `rows` rows of n elements, four at a time as above.
using ColumnFn = void (*)(void* acc, const void* x, int64_t stride, int64_t rows, int64_t n);
/// acc[0] = op(acc[0], x[0]), out[0] = acc[0], ...: a running fold that leaves the total in acc.
using PrefixFn = void (*)(void* out, void* acc, const void* x, int64_t n);
/// fast_f32 of a row: see FastF32 in op_def.h.
using FastFn = void (*)(float* out, const float* a, const float* b, int64_t n);

inline constexpr int kScalarOpCount = 0
#define X(name, arity) +1
    TD_FOR_EACH_SCALAR_OP(X)
#undef X
    ;
inline constexpr int kRegCount = 4;
/// Lanes of a row fold.
inline constexpr int64_t kLanes = 64;

/// Ops that a fold can be made of.
enum class Fold : uint8_t { add, mul, max, min };
inline constexpr int kFoldCount = 4;

/// select(a < b, c, d) and its three sisters as one loop; b is one value.
enum class Compare : uint8_t { lt, le, gt, ge };
inline constexpr int kCompareCount = 4;

struct TileTable {
  const char* name;
  /// [op][type of the operands][form]: bit i of the form says that operand i is one value.
  TileFn op[kScalarOpCount][kRegCount][8];
  TileFn convert[kRegCount][kRegCount];  ///< [from][to]
  TileFn wrap[kDTypeCount];              ///< i64 to the range of an integer dtype
  TileFn load[kDTypeCount];              ///< storage to register type
  TileFn store[kDTypeCount];             ///< register type to storage
  TileFn fill[kRegCount];                ///< out[i] = a[0]
  /// [compare][f32, f64][form]: bit 0: c is one value, bit 1: d is one value.
  TileFn select_compare[kCompareCount][2][4];
  TileFn mul_add[2][4];  ///< a * b + c; bit 0: b, bit 1: c is one value
  LanesFn lanes[kFoldCount][kRegCount];
  LanesFn tree[kFoldCount][kRegCount];  ///< lanes[0] = fold of the first n lanes, pairwise
  RowsFn rows[kFoldCount][kRegCount];
  ColumnFn column[kFoldCount][kRegCount];
  PrefixFn prefix[kFoldCount][kRegCount];
  PrefixFn wide_prefix[kFoldCount];  ///< x and out are f32, acc is an f64
  PrefixFn wide_step[kFoldCount];    ///< likewise for n lines side by side, each with its acc
  FastFn fast_unary[kScalarOpCount], fast_binary[kScalarOpCount];
  /// [compare][k]: t < 0 ? 0 : v and (k + 3) t < 0 ? v : 0, where (t, v) is (a, a), (a, b), (b, a).
  FastFn fast_select[kCompareCount][6];
};

extern const TileTable kTilesBase, kTilesAvx2, kTilesAvx512;

/// The best table for this processor; chosen once.
const TileTable& tiles();
/// Every table that this processor can run, slowest first; for tests of equal bits.
int all_tiles(const TileTable* (&tables)[3]);
/// Use `table` from now on (nullptr: the best); for tests and benchmarks.
void use_tiles(const TileTable* table);

/// Bytes of one register element.
constexpr int reg_size(Reg r) { return r == Reg::f32 ? 4 : r == Reg::b8 ? 1 : 8; }
/// Are the bytes of a stored dtype the bytes of its register?
constexpr bool stored_as_reg(DType t) {
  return t == DType::f32 || t == DType::f64 || t == DType::i64 || t == DType::b8;
}

}  // namespace tandem::codegen
