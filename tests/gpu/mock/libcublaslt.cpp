// SPDX-License-Identifier: Apache-2.0
// A libcublasLt.so.13 for tests (matmul_library_test.cpp): column-major matmuls on the host, by
// their definition, over the layouts that it is given, which it checks. Without the question for
// sums without atomics its algorithm gives NaN.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tandem/backend/gpu/cuda/cublaslt_abi_internal.h"
#include "tests/gpu/mock/values.h"

namespace {

using namespace tandem::gpu::cuda;
using tandem::mock::Type;

constexpr Result kInvalid = 7;  // CUBLAS_STATUS_INVALID_VALUE
constexpr size_t kScratchBytes = 500;
constexpr uint64_t kOrdered = 11, kAtomic = 12;  // algorithms

struct Attributes {
  std::map<int, std::vector<char>> bytes;
  template <class T>
  T get(int name, T otherwise) const {
    const auto at = bytes.find(name);
    if (at != bytes.end()) std::memcpy(&otherwise, at->second.data(), sizeof(T));
    return otherwise;
  }
  Result set(int name, const void* from, size_t n) {
    const auto* first = static_cast<const char*>(from);
    bytes[name] = {first, first + n};
    return kSuccess;
  }
};
struct Desc : Attributes {
  int compute = 0, scale = 0;
};
struct Layout : Attributes {
  int type = 0;
  int64_t rows = 0, columns = 0, line = 0;
  int32_t count() const { return get<int32_t>(kLayoutBatchCount, 1); }
  int64_t next() const { return get<int64_t>(kLayoutBatchStride, 0); }
};

int g_live = 0, g_runs = 0;
std::string g_last, g_fails;
Result g_result = 0;
char g_handle;

bool fails(const char* name) {
  if (g_fails != name) return false;
  g_fails.clear();
  return true;
}
Desc* of(LtMatmulDesc d) { return reinterpret_cast<Desc*>(d); }
Layout* of(LtLayout l) { return reinterpret_cast<Layout*>(l); }
Attributes* of(LtPreference p) { return reinterpret_cast<Attributes*>(p); }
template <class T, class Handle>
T* make(Handle* place) {
  auto* made = new T;
  *place = reinterpret_cast<Handle>(made);
  ++g_live;
  return made;
}
template <class Object>
Result destroy(Object* o) {
  delete o;
  return --g_live, kSuccess;
}

Type type_at(int number) {
  return number == kR32F   ? Type::f32
         : number == kR64F ? Type::f64
         : number == kR16F ? Type::f16
                           : Type::bf16;
}

// One side of a product as it is multiplied.
struct Factor {
  const Layout& l;
  const void* at;
  bool turned, round;
  int64_t rows() const { return turned ? l.columns : l.rows; }
  int64_t columns() const { return turned ? l.rows : l.columns; }
  double element(int64_t batch, int64_t row, int64_t column) const {
    if (turned) std::swap(row, column);
    const double v =
        tandem::mock::load(at, type_at(l.type), batch * l.next() + row + column * l.line);
    return round ? tandem::mock::as_tf32(v) : v;
  }
};

bool fits(const Layout& l) { return l.rows > 0 && l.columns > 0 && l.line >= l.rows; }

// Are the descriptors those of one product?
bool agree(const Desc& d, const Factor& a, const Factor& b, const Layout& y) {
  return fits(a.l) && fits(b.l) && fits(y) && a.columns() == b.rows() && a.rows() == y.rows &&
         b.columns() == y.columns && a.l.count() == y.count() && b.l.count() == y.count() &&
         a.l.type == y.type && b.l.type == y.type && d.scale == (y.type == kR64F ? kR64F : kR32F);
}
std::string described(const Layout& l) {
  return std::to_string(l.rows) + "x" + std::to_string(l.columns) + "/" + std::to_string(l.line) +
         (l.count() > 1 ? "*" + std::to_string(l.count()) + "/" + std::to_string(l.next()) : "");
}

}  // namespace

extern "C" {
#define MOCK __attribute__((visibility("default")))

MOCK int mock_lt_live() { return g_live; }
MOCK int mock_lt_runs() { return g_runs; }
MOCK const char* mock_lt_last() { return g_last.c_str(); }
MOCK void mock_lt_fail(const char* name, Result result) {
  g_fails = name;
  g_result = result;
}

MOCK size_t cublasLtGetVersion() { return 130405; }
MOCK const char* cublasLtGetStatusName(Result r) {
  static std::string text;
  return text = "CUBLAS_STATUS_" + std::to_string(r), text.c_str();
}
MOCK Result cublasLtCreate(LtHandle* h) {
  if (fails("cublasLtCreate")) return g_result;
  ++g_live;
  return *h = reinterpret_cast<LtHandle>(&g_handle), kSuccess;
}
MOCK Result cublasLtDestroy(LtHandle) { return --g_live, kSuccess; }
MOCK Result cublasLtMatmulDescCreate(LtMatmulDesc* d, int compute, int scale) {
  Desc* made = make<Desc>(d);
  made->compute = compute;
  made->scale = scale;
  return kSuccess;
}
MOCK Result cublasLtMatmulDescDestroy(LtMatmulDesc d) { return destroy(of(d)); }
MOCK Result cublasLtMatmulDescSetAttribute(LtMatmulDesc d, int name, const void* from, size_t n) {
  return of(d)->set(name, from, n);
}
MOCK Result cublasLtMatrixLayoutCreate(LtLayout* l, int type, uint64_t rows, uint64_t columns,
                                       int64_t line) {
  Layout* made = make<Layout>(l);
  made->type = type;
  made->rows = static_cast<int64_t>(rows);
  made->columns = static_cast<int64_t>(columns);
  made->line = line;
  return kSuccess;
}
MOCK Result cublasLtMatrixLayoutDestroy(LtLayout l) { return destroy(of(l)); }
MOCK Result cublasLtMatrixLayoutSetAttribute(LtLayout l, int name, const void* from, size_t n) {
  return of(l)->set(name, from, n);
}
MOCK Result cublasLtMatmulPreferenceCreate(LtPreference* p) {
  return make<Attributes>(p), kSuccess;
}
MOCK Result cublasLtMatmulPreferenceDestroy(LtPreference p) { return destroy(of(p)); }
MOCK Result cublasLtMatmulPreferenceSetAttribute(LtPreference p, int name, const void* from,
                                                 size_t n) {
  return of(p)->set(name, from, n);
}
MOCK Result cublasLtMatmulAlgoGetHeuristic(LtHandle, LtMatmulDesc, LtLayout, LtLayout, LtLayout,
                                           LtLayout, LtPreference p, int most, LtHeuristic* found,
                                           int* count) {
  if (fails("cublasLtMatmulAlgoGetHeuristic")) return g_result;
  if (most < 1 || of(p)->get<size_t>(kPreferWorkspace, 0) < kScratchBytes) return kInvalid;
  const uint32_t in_place = 1;  // CUBLASLT_REDUCTION_SCHEME_INPLACE
  const bool atomics = of(p)->get<uint32_t>(kPreferReduction, ~0u) & in_place;
  *found = {};
  found->algo.data[0] = atomics ? kAtomic : kOrdered;
  found->workspace = kScratchBytes;
  return *count = 1, kSuccess;
}
MOCK Result cublasLtMatmul(LtHandle, LtMatmulDesc desc, const void* alpha, const void* a_at,
                           LtLayout a_layout, const void* b_at, LtLayout b_layout, const void* beta,
                           const void*, LtLayout, void* y_at, LtLayout y_layout, const LtAlgo* algo,
                           void* scratch, size_t scratch_bytes, Stream) {
  if (fails("cublasLtMatmul")) return g_result;
  const Desc& d = *of(desc);
  const Layout& y = *of(y_layout);
  const bool round = d.compute == kCompute32FTf32;
  const Factor a{*of(a_layout), a_at, d.get<int32_t>(kDescTransA, kOpN) == kOpT, round};
  const Factor b{*of(b_layout), b_at, d.get<int32_t>(kDescTransB, kOpN) == kOpT, round};
  const Type scale = y.type == kR64F ? Type::f64 : Type::f32;
  if (!agree(d, a, b, y) || scratch_bytes < kScratchBytes || !scratch) return kInvalid;
  if (tandem::mock::load(alpha, scale, 0) != 1 || tandem::mock::load(beta, scale, 0) != 0) {
    return kCublasNotSupported;
  }
  std::memset(scratch, 0xff, kScratchBytes);  // all of it is the library's
  const bool has_bias = d.get<uint32_t>(kDescEpilogue, 1) == kEpilogueBias;
  const auto* bias = d.get<const void*>(kDescBias, nullptr);
  if (has_bias && (!bias || d.get<int32_t>(kDescBiasType, -1) != y.type)) return kInvalid;
  for (int64_t batch = 0; batch < y.count(); ++batch) {
    for (int64_t column = 0; column < y.columns; ++column) {
      for (int64_t row = 0; row < y.rows; ++row) {
        double sum = has_bias ? tandem::mock::load(bias, type_at(y.type), row) : 0;
        for (int64_t k = 0; k < a.columns(); ++k) {
          sum += a.element(batch, row, k) * b.element(batch, k, column);
        }
        tandem::mock::store(y_at, type_at(y.type), batch * y.next() + row + column * y.line,
                            algo->data[0] == kOrdered ? sum : NAN);
      }
    }
  }
  ++g_runs;
  g_last = described(a.l) + (a.turned ? "^T " : " ") + described(b.l) + (b.turned ? "^T " : " ") +
           described(y) + (has_bias ? " bias" : "") + (round ? " tf32" : "");
  return kSuccess;
}
}
