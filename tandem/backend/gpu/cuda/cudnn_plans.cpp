// SPDX-License-Identifier: Apache-2.0
// A convolution as a graph of one operation, or of two with a bias, and the engine that runs it:
// the first that cuDNN proposes among those that give the same bits each time and round no more
// than the problem says. Arrays are described as they lie: engines that want another order bring
// their own conversions, for each operand that has not that order (what they need is workspace).
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tandem/backend/gpu/cuda/cudnn_objects_internal.h"

namespace tandem::gpu {

Status cudnn_status(const cudnn::Api& api, cuda::Result result, const char* call) {
  if (result == cuda::kSuccess) return {};
  char text[512] = {};
  api.cudnnGetLastErrorString(text, sizeof text);
  const bool refused = result >= cudnn::kBadParameter && result < cudnn::kInternal;
  return {refused ? Code::unavailable : Code::driver,
          std::string(call) + ": " + api.cudnnGetErrorString(result) +
              (*text ? " (" + std::string(text) + ")" : "")};
}

CudnnObject::CudnnObject(const cudnn::Api& api, int kind)
    : api_(&api),
      status_(cudnn_status(api, api.cudnnBackendCreateDescriptor(kind, &ref_),
                           "cudnnBackendCreateDescriptor")) {}
CudnnObject::~CudnnObject() {
  if (ref_) api_->cudnnBackendDestroyDescriptor(ref_);
}
CudnnObject::CudnnObject(CudnnObject&& other) noexcept
    : api_(other.api_),
      ref_(std::exchange(other.ref_, nullptr)),
      status_(std::move(other.status_)) {}
CudnnObject& CudnnObject::operator=(CudnnObject&& other) noexcept {
  std::swap(ref_, other.ref_);
  std::swap(status_, other.status_);
  return *this;
}
CudnnObject& CudnnObject::set(int attribute, int type, int64_t count, const void* values) {
  if (status_.ok()) {
    status_ =
        cudnn_status(*api_, api_->cudnnBackendSetAttribute(ref_, attribute, type, count, values),
                     "cudnnBackendSetAttribute");
  }
  return *this;
}
Status CudnnObject::finish() {
  if (status_.ok()) {
    status_ = cudnn_status(*api_, api_->cudnnBackendFinalize(ref_), "cudnnBackendFinalize");
  }
  return status_;
}
Status CudnnObject::get(int attribute, int type, int64_t most, int64_t& count, void* values) const {
  return cudnn_status(*api_,
                      api_->cudnnBackendGetAttribute(ref_, attribute, type, most, &count, values),
                      "cudnnBackendGetAttribute");
}

namespace {

/// Beside the bytes of its operands, which conversions of order may need.
constexpr int64_t kMostWorkspace = int64_t{256} << 20;

struct DnnTypes {
  int data, compute, scale;
};
bool types_of(const ConvProblem& p, DnnTypes& t) {
  t = {cudnn::kF32, cudnn::kF32, cudnn::kFloatType};
  switch (p.dtype) {
    case DType::f32:
      return true;
    case DType::f64:
      t = {cudnn::kF64, cudnn::kF64, cudnn::kDoubleType};
      return true;
    case DType::f16:
      t.data = cudnn::kF16;
      return true;
    case DType::bf16:
      t.data = cudnn::kBF16;
      return true;
    default:
      return false;
  }
}

/// Engines are made for two and three spatial dimensions: one of size 1 in front of a single one.
int spatial_of(const ConvProblem& p) { return std::max(p.spatial, 2); }
ConvProblem::Lie widened(const ConvProblem& p, const ConvProblem::Lie& from) {
  if (p.spatial > 1) return from;
  ConvProblem::Lie lie = from;
  lie.size[2] = 1;
  lie.size[3] = from.size[2];
  lie.stride[2] = from.stride[2] * from.size[2];
  lie.stride[3] = from.stride[2];
  return lie;
}

class GraphMaker {
 public:
  GraphMaker(const cudnn::Api& api, const ConvProblem& p, std::vector<CudnnObject>& objects)
      : api_(api), p_(p), objects_(objects) {
    objects_.reserve(16);  // references to them stay
  }

  Status make() {
    if (!types_of(p_, types_)) return {Code::unavailable, "cuDNN convolves floating dtypes"};
    const CudnnObject& x = tensor(kCudnnX, p_.x);
    const CudnnObject& w = tensor(kCudnnW, p_.w);
    const CudnnObject& y = tensor(kCudnnY, p_.y);
    const CudnnObject& sum = p_.bias ? tensor(kCudnnSum, p_.y) : y;
    std::vector<cudnn::Descriptor> operations{convolution(x, w, sum).ref()};
    if (p_.bias) operations.push_back(addition(sum, y).ref());
    if (!status_.ok()) return status_;
    add(cudnn::kGraph)
        .set(cudnn::kGraphOperations, cudnn::kDescriptorType,
             static_cast<int64_t>(operations.size()), operations.data());
    return {};
  }
  /// Still open for attributes: the target's handle is set last.
  CudnnObject& graph() { return objects_.back(); }

 private:
  CudnnObject& add(int kind) { return objects_.emplace_back(api_, kind); }
  CudnnObject& finished(CudnnObject& o) {
    if (const Status s = o.finish(); status_.ok()) status_ = s;
    return o;
  }

  // The sum before a bias is never stored: it has the type that is computed with.
  CudnnObject& tensor(int64_t id, const ConvProblem::Lie& from) {
    const ConvProblem::Lie lie = widened(p_, from);
    const int rank = spatial_of(p_) + 2;
    const bool is_virtual = id == kCudnnSum;
    CudnnObject& t = add(cudnn::kTensor);
    t.choice(cudnn::kTensorType, cudnn::kDataType, is_virtual ? types_.compute : types_.data)
        .numbers(cudnn::kTensorSizes, lie.size, rank)
        .numbers(cudnn::kTensorStrides, lie.stride, rank)
        .number(cudnn::kTensorId, id)
        .number(cudnn::kTensorAlignment, kConvAlignment)
        .set(cudnn::kTensorVirtual, cudnn::kBooleanType, 1, &is_virtual);
    return finished(t);
  }

  CudnnObject& geometry() {
    const int n = spatial_of(p_), lead = n - p_.spatial;
    int64_t by[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, before[3] = {}, after[3] = {};
    for (int i = 0; i < p_.spatial; ++i) {
      by[i + lead] = p_.by[i];
      dilation[i + lead] = p_.dilation[i];
      before[i + lead] = p_.padding[i];
      after[i + lead] = p_.padding_end[i];
    }
    CudnnObject& c = add(cudnn::kConvolution);
    c.choice(cudnn::kComputeType, cudnn::kDataType, types_.compute)
        .choice(cudnn::kConvolutionMode, cudnn::kConvolutionModeType, cudnn::kCrossCorrelation)
        .number(cudnn::kSpatial, n)
        .numbers(cudnn::kDilations, dilation, n)
        .numbers(cudnn::kStrides, by, n)
        .numbers(cudnn::kPadding, before, n)
        .numbers(cudnn::kPaddingEnd, after, n);
    return finished(c);
  }

  CudnnObject& convolution(const CudnnObject& x, const CudnnObject& w, const CudnnObject& y) {
    static constexpr double kOne64 = 1, kZero64 = 0;
    static constexpr float kOne = 1, kZero = 0;
    const bool f64 = types_.scale == cudnn::kDoubleType;
    const int first = p_.result == ConvResult::y   ? cudnn::kForwardFirst
                      : p_.result == ConvResult::x ? cudnn::kBackwardInputFirst
                                                   : cudnn::kBackwardWeightFirst;
    const CudnnObject& how = geometry();
    CudnnObject& c = add(p_.result == ConvResult::y   ? cudnn::kForward
                         : p_.result == ConvResult::x ? cudnn::kBackwardInput
                                                      : cudnn::kBackwardWeight);
    c.set(first + cudnn::kAlpha, types_.scale, 1, f64 ? static_cast<const void*>(&kOne64) : &kOne)
        .set(first + cudnn::kBeta, types_.scale, 1,
             f64 ? static_cast<const void*>(&kZero64) : &kZero)
        .object(first + cudnn::kGeometry, how)
        .object(first + cudnn::kW, w)
        .object(first + cudnn::kX, x)
        .object(first + cudnn::kY, y);
    return finished(c);
  }

  CudnnObject& addition(const CudnnObject& sum, const CudnnObject& y) {
    ConvProblem::Lie row;
    std::fill(std::begin(row.size), std::end(row.size), 1);
    std::fill(std::begin(row.stride), std::end(row.stride), 1);
    row.size[1] = row.stride[0] = p_.y.size[1];
    const CudnnObject& bias = tensor(kCudnnBias, row);
    CudnnObject& how = add(cudnn::kPointwise);
    how.choice(cudnn::kPointwiseMode, cudnn::kPointwiseModeType, cudnn::kAdd)
        .choice(cudnn::kPointwisePrecision, cudnn::kDataType, types_.compute);
    finished(how);
    CudnnObject& a = add(cudnn::kPointwiseOperation);
    a.object(cudnn::kPointwiseGeometry, how)
        .object(cudnn::kPointwiseX, sum)
        .object(cudnn::kPointwiseB, bias)
        .object(cudnn::kPointwiseY, y);
    return finished(a);
  }

  const cudnn::Api& api_;
  const ConvProblem& p_;
  std::vector<CudnnObject>& objects_;
  DnnTypes types_{};
  Status status_;
};

// Transforms (Winograd, FFT) lose digits, in f16 so many that it shows.
bool note_suits(const ConvProblem& p, int note) {
  if (note == cudnn::kTensorCore) return p.dtype != DType::f32 || p.tf32;
  return note != cudnn::kNondeterministic && note != cudnn::kReducedSums &&
         note != cudnn::kDownConverts && note != cudnn::kFft &&
         (note < cudnn::kWinograd || note > cudnn::kWinogradLast);
}

int64_t bytes_of(const ConvProblem& p) {
  int64_t elements = 0;
  for (const ConvProblem::Lie* lie : {&p.x, &p.w, &p.y}) {
    int64_t n = 1;
    for (int d = 0; d < p.spatial + 2; ++d) n *= lie->size[d];
    elements += n;
  }
  return elements * static_cast<int64_t>(size_of(p.dtype));
}

class EngineChooser {
 public:
  EngineChooser(const cudnn::Api& api, const CudnnTarget& target, const ConvProblem& p,
                const CudnnObject& graph)
      : api_(api), target_(target), p_(p), graph_(graph) {}

  /// An engine's configuration, and its plan.
  Status choose(CudnnPlan& made) {
    Status last{Code::unavailable, "cuDNN has no engine for it"};
    for (const int mode : {cudnn::kModeA, cudnn::kModeB, cudnn::kModeFallback}) {
      std::vector<CudnnObject> configs;
      if (Status s = proposals(mode, configs); !s.ok()) last = std::move(s);
      for (CudnnObject& config : configs) {
        if (!suits(config, made.algorithm)) continue;
        CudnnObject plan(api_, cudnn::kPlan);
        int64_t bytes = 0;
        if (Status s = finish(plan, config, bytes); !s.ok()) {
          last = std::move(s);
        } else if (bytes <= bytes_of(p_) + kMostWorkspace) {
          made.workspace = static_cast<size_t>(bytes);
          made.objects.push_back(std::move(config));
          made.objects.push_back(std::move(plan));
          return {};
        }
      }
    }
    return {Code::unavailable, last.text()};
  }

 private:
  Status proposals(int mode, std::vector<CudnnObject>& configs) const {
    CudnnObject heuristics(api_, cudnn::kHeuristics);
    heuristics.object(cudnn::kHeuristicsGraph, graph_)
        .choice(cudnn::kHeuristicsMode, cudnn::kHeuristicsModeType, mode);
    if (target_.device) heuristics.object(cudnn::kHeuristicsDevice, *target_.device);
    TD_GPU_TRY(heuristics.finish());
    int64_t n = 0;
    TD_GPU_TRY(heuristics.get(cudnn::kResults, cudnn::kDescriptorType, 0, n, nullptr));
    std::vector<cudnn::Descriptor> refs;
    for (int64_t i = 0; i < n; ++i)
      refs.push_back(configs.emplace_back(api_, cudnn::kEngineConfig).ref());
    return n == 0 ? Status()
                  : heuristics.get(cudnn::kResults, cudnn::kDescriptorType, n, n, refs.data());
  }

  bool suits(const CudnnObject& config, std::string& algorithm) const {
    CudnnObject engine(api_, cudnn::kEngine);
    cudnn::Descriptor ref = engine.ref();
    int64_t n = 0, number = 0;
    int notes[cudnn::kNotes] = {};
    if (!config.get(cudnn::kConfigEngine, cudnn::kDescriptorType, 1, n, &ref).ok() ||
        !engine.get(cudnn::kEngineNumber, cudnn::kInt64Type, 1, n, &number).ok() ||
        !engine.get(cudnn::kEngineNotes, cudnn::kNoteType, cudnn::kNotes, n, notes).ok()) {
      return false;
    }
    bool units = false;
    for (int64_t i = 0; i < std::min<int64_t>(n, cudnn::kNotes); ++i) {
      if (!note_suits(p_, notes[i])) return false;
      units |= notes[i] == cudnn::kTensorCore;
    }
    algorithm = fmt::format("engine {}{}", number, units ? ", tensor cores" : "");
    return true;
  }

  Status finish(CudnnObject& plan, const CudnnObject& config, int64_t& bytes) const {
    if (target_.device) plan.object(cudnn::kPlanDevice, *target_.device);
    if (target_.handle) plan.handle(cudnn::kPlanHandle, target_.handle);
    TD_GPU_TRY(plan.object(cudnn::kPlanConfig, config).finish());
    int64_t n = 0;
    return plan.get(cudnn::kPlanWorkspace, cudnn::kInt64Type, 1, n, &bytes);
  }

  const cudnn::Api& api_;
  const CudnnTarget& target_;
  const ConvProblem& p_;
  const CudnnObject& graph_;
};

}  // namespace

Status plan_cudnn(const cudnn::Api& api, const CudnnTarget& target, const ConvProblem& problem,
                  CudnnPlan& made) {
  GraphMaker maker(api, problem, made.objects);
  TD_GPU_TRY(maker.make());
  CudnnObject& graph = maker.graph();
  if (target.handle) graph.handle(cudnn::kGraphHandle, target.handle);
  TD_GPU_TRY(graph.finish());
  return EngineChooser(api, target, problem, graph).choose(made);
}

}  // namespace tandem::gpu
