// SPDX-License-Identifier: Apache-2.0
// cuBLASLt is column-major, so a row-major y = a b is asked for as y^T = b^T a^T: its first factor
// is b, its rows are our columns.
#include "tandem/backend/gpu/cuda/cublaslt_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tandem/backend/gpu/cuda/cublaslt_abi_internal.h"
#include "tandem/backend/gpu/library_internal.h"

namespace tandem::gpu {

CublasLtLibrary open_cublaslt_library() {
  CublasLtLibrary l;
  const bool on = open_functions(
      "cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so.12"},
      [&](const Library& library, std::string& missing) {
#define TD_LT_RESOLVE(name, parameters) resolve_symbol(library, #name, &l.api.name, missing);
        TD_CUBLASLT_FUNCTIONS(TD_LT_RESOLVE)
#undef TD_LT_RESOLVE
        resolve_symbol(library, "cublasLtGetVersion", &l.api.cublasLtGetVersion, missing);
        resolve_symbol(library, "cublasLtGetStatusName", &l.api.cublasLtGetStatusName, missing);
      },
      l.report);
  if (!on) return l;
  const size_t v = l.api.cublasLtGetVersion();
  l.report.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  return l;
}

const CublasLtLibrary& cublaslt_library() {
  static const CublasLtLibrary* const library = new CublasLtLibrary(open_cublaslt_library());
  return *library;
}

namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  ///< what NVIDIA recommends for Hopper

Status lt_status(const cuda::CublasLtApi& lt, cuda::Result result, const char* call) {
  if (result == cuda::kSuccess) return {};
  const Code code = result == cuda::kCublasNotSupported ? Code::unavailable : Code::driver;
  return {code, fmt::format("{}: {}", call, lt.cublasLtGetStatusName(result))};
}

// A function of the library that the class has as lt_.
#define TD_LT(name, ...) lt_status(lt_, lt_.name(__VA_ARGS__), #name)

struct LtTypes {
  int data, compute, scale;
};
bool types_of(const MatmulProblem& p, LtTypes& t) {
  switch (p.dtype) {
    case DType::f32:
      t = {cuda::kR32F, p.tf32 ? cuda::kCompute32FTf32 : cuda::kCompute32F, cuda::kR32F};
      return true;
    case DType::f64:
      t = {cuda::kR64F, cuda::kCompute64F, cuda::kR64F};
      return true;
    case DType::f16:
      t = {cuda::kR16F, cuda::kCompute32F, cuda::kR32F};
      return true;
    case DType::bf16:
      t = {cuda::kR16BF, cuda::kCompute32F, cuda::kR32F};
      return true;
    default:
      return false;
  }
}

// The descriptors of a problem, destroyed whatever happens.
struct LtDescriptors {
  explicit LtDescriptors(const cuda::CublasLtApi& lt) : lt_(lt) {}
  ~LtDescriptors() {
    if (matmul) lt_.cublasLtMatmulDescDestroy(matmul);
    for (cuda::LtLayout l : {first, second, result}) {
      if (l) lt_.cublasLtMatrixLayoutDestroy(l);
    }
  }
  LtDescriptors(const LtDescriptors&) = delete;
  LtDescriptors& operator=(const LtDescriptors&) = delete;

  template <class T>
  Status set(int attribute, const T& value) {
    return TD_LT(cublasLtMatmulDescSetAttribute, matmul, attribute, &value, sizeof value);
  }
  // A column-major matrix; `line` counts only from the second column on.
  Status layout(cuda::LtLayout& l, int type, int64_t rows, int64_t columns, int64_t line,
                int64_t count, int64_t next) {
    TD_GPU_TRY(TD_LT(cublasLtMatrixLayoutCreate, &l, type, static_cast<uint64_t>(rows),
                     static_cast<uint64_t>(columns), columns > 1 ? line : std::max(rows, line)));
    if (count == 1) return {};
    const auto batch = static_cast<int32_t>(count);
    TD_GPU_TRY(
        TD_LT(cublasLtMatrixLayoutSetAttribute, l, cuda::kLayoutBatchCount, &batch, sizeof batch));
    return TD_LT(cublasLtMatrixLayoutSetAttribute, l, cuda::kLayoutBatchStride, &next, sizeof next);
  }
  Status describe(const MatmulProblem& p, const LtTypes& t) {
    TD_GPU_TRY(TD_LT(cublasLtMatmulDescCreate, &matmul, t.compute, t.scale));
    TD_GPU_TRY(set(cuda::kDescTransA, p.b_along_k ? cuda::kOpT : cuda::kOpN));
    TD_GPU_TRY(set(cuda::kDescTransB, p.a_along_k ? cuda::kOpN : cuda::kOpT));
    if (p.bias) {
      TD_GPU_TRY(set(cuda::kDescEpilogue, cuda::kEpilogueBias));
      TD_GPU_TRY(set(cuda::kDescBiasType, int32_t{t.data}));
    }
    const auto [b_rows, b_columns] = p.b_along_k ? std::pair{p.k, p.n} : std::pair{p.n, p.k};
    const auto [a_rows, a_columns] = p.a_along_k ? std::pair{p.k, p.m} : std::pair{p.m, p.k};
    TD_GPU_TRY(layout(first, t.data, b_rows, b_columns, p.b_line, p.count, p.b_next));
    TD_GPU_TRY(layout(second, t.data, a_rows, a_columns, p.a_line, p.count, p.a_next));
    return layout(result, t.data, p.n, p.m, p.y_line, p.count, p.y_next);
  }

  const cuda::CublasLtApi& lt_;
  cuda::LtMatmulDesc matmul = nullptr;
  cuda::LtLayout first = nullptr, second = nullptr, result = nullptr;
};

class LtPlan final : public MatmulPlan {
 public:
  explicit LtPlan(const cuda::CublasLtApi& lt) : lt_(lt), descriptors_(lt) {}
  Status make(cuda::LtHandle handle, const cuda::Api& api, cuda::Context context,
              const MatmulProblem& p) {
    handle_ = handle;
    api_ = &api;
    context_ = context;
    f64_ = p.dtype == DType::f64;
    has_bias_ = p.bias;
    LtTypes types{};
    if (!types_of(p, types)) return {Code::unavailable, "cuBLASLt multiplies floating dtypes"};
    TD_GPU_TRY(descriptors_.describe(p, types));
    return choose();
  }

  Status run(const MatmulOperands& at, StreamRef stream) const override {
    static constexpr float kOne = 1, kZero = 0;
    static constexpr double kOne64 = 1, kZero64 = 0;
    const void* one = f64_ ? static_cast<const void*>(&kOne64) : &kOne;
    const void* zero = f64_ ? static_cast<const void*>(&kZero64) : &kZero;
    if (api_->cuCtxSetCurrent(context_) != cuda::kSuccess) {
      return {Code::driver, "cuCtxSetCurrent before cublasLtMatmul failed"};
    }
    const auto place = [](Address a) { return reinterpret_cast<void*>(a); };
    std::unique_lock<std::mutex> hold(lock_, std::defer_lock);
    if (has_bias_) {  // the bias is part of the descriptor
      hold.lock();
      const void* bias = place(at.bias);
      TD_GPU_TRY(TD_LT(cublasLtMatmulDescSetAttribute, descriptors_.matmul, cuda::kDescBias, &bias,
                       sizeof bias));
    }
    return TD_LT(cublasLtMatmul, handle_, descriptors_.matmul, one, place(at.b), descriptors_.first,
                 place(at.a), descriptors_.second, zero, place(at.y), descriptors_.result,
                 place(at.y), descriptors_.result, &algorithm_, place(at.scratch), workspace,
                 reinterpret_cast<cuda::Stream>(stream));
  }

 private:
  // The library's first proposal among algorithms without atomics.
  Status choose() {
    cuda::LtPreference preference = nullptr;
    TD_GPU_TRY(TD_LT(cublasLtMatmulPreferenceCreate, &preference));
    const auto set = [&](int attribute, const auto& value) {
      return TD_LT(cublasLtMatmulPreferenceSetAttribute, preference, attribute, &value,
                   sizeof value);
    };
    Status status = set(cuda::kPreferWorkspace, kWorkspace);
    if (status.ok()) {
      status = set(cuda::kPreferReduction, cuda::kReductionCompute | cuda::kReductionOutput);
    }
    for (int i = cuda::kPreferAlignmentA; status.ok() && i <= cuda::kPreferAlignmentD; ++i) {
      status = set(i, static_cast<uint32_t>(kMatmulAlignment));
    }
    cuda::LtHeuristic found{};
    int count = 0;
    if (status.ok()) {
      status = TD_LT(cublasLtMatmulAlgoGetHeuristic, handle_, descriptors_.matmul,
                     descriptors_.first, descriptors_.second, descriptors_.result,
                     descriptors_.result, preference, 1, &found, &count);
    }
    lt_.cublasLtMatmulPreferenceDestroy(preference);
    TD_GPU_TRY(status);
    if (count == 0) return {Code::unavailable, "cuBLASLt has no algorithm for it"};
    TD_GPU_TRY(lt_status(lt_, found.state, "cublasLtMatmulAlgoGetHeuristic"));
    algorithm_ = found.algo;
    workspace = found.workspace;
    return {};
  }

  const cuda::CublasLtApi& lt_;
  LtDescriptors descriptors_;
  cuda::LtAlgo algorithm_{};
  cuda::LtHandle handle_ = nullptr;
  const cuda::Api* api_ = nullptr;
  cuda::Context context_ = nullptr;
  bool f64_ = false, has_bias_ = false;
  mutable std::mutex lock_;
};

class LtLibrary final : public MatmulLibrary {
 public:
  LtLibrary(const cuda::CublasLtApi& lt, const cuda::Api& api, cuda::Context context)
      : lt_(lt), api_(api), context_(context) {}
  ~LtLibrary() override {
    if (handle_) lt_.cublasLtDestroy(handle_);
  }
  LtLibrary(const LtLibrary&) = delete;
  LtLibrary& operator=(const LtLibrary&) = delete;

  Status open() {
    TD_GPU_TRY(cuda_status(api_, api_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"));
    return TD_LT(cublasLtCreate, &handle_);
  }
  Status plan(const MatmulProblem& problem, std::unique_ptr<MatmulPlan>& made) override {
    TD_GPU_TRY(cuda_status(api_, api_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"));
    auto plan = std::make_unique<LtPlan>(lt_);
    TD_GPU_TRY(plan->make(handle_, api_, context_, problem));
    made = std::move(plan);
    return {};
  }

 private:
  const cuda::CublasLtApi& lt_;
  const cuda::Api& api_;
  cuda::Context context_;
  cuda::LtHandle handle_ = nullptr;
};

#undef TD_LT

}  // namespace

Status open_cublaslt(const CublasLtLibrary& library, const cuda::Api& api, cuda::Context context,
                     std::unique_ptr<MatmulLibrary>& made) {
  if (!library.report.problem.empty()) {
    return {Code::unavailable, "cuBLASLt is off: " + library.report.problem};
  }
  auto opened = std::make_unique<LtLibrary>(library.api, api, context);
  TD_GPU_TRY(opened->open());
  made = std::move(opened);
  return {};
}

}  // namespace tandem::gpu
