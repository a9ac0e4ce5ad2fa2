// SPDX-License-Identifier: Apache-2.0
// A libcudnn.so.9 for tests (conv_library_test.cpp): descriptors with attributes, of which it
// checks kinds, types and sizes as cuDNN does, and convolutions on the host, by their definition,
// over the strides that it is given. It proposes engines that must be passed over, whose results
// are wrong, before those that suit. What it shows is that rows and plans say what they mean.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tandem/backend/gpu/cuda/cudnn_abi_internal.h"
#include "tests/gpu/mock/values.h"

namespace {

using namespace tandem::gpu::cudnn;
using tandem::gpu::cuda::kSuccess;
using tandem::mock::Type;

constexpr int kMostRank = 5;
constexpr int64_t kScratchBytes = 1000;

// Engines in the order in which they are proposed.
enum Engine : int64_t { kAtomic = 7, kUnits = 8, kExact = 9 };
constexpr int64_t kProposals[] = {kAtomic, kUnits, kExact};

struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
};
struct Object {
  int kind = 0;
  bool finished = false;
  int64_t engine = 0;             // of engines and configurations
  const Object* graph = nullptr;  // of configurations
  std::map<int, Attribute> attributes;

  bool has(int name) const { return attributes.count(name) != 0; }
  template <class T>
  T get(int name, int64_t i = 0) const {
    T value{};
    std::memcpy(&value, attributes.at(name).bytes.data() + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    return value;
  }
  const Object& object(int name, int64_t i = 0) const {
    return *static_cast<const Object*>(get<void*>(name, i));
  }
  int64_t count(int name) const { return attributes.at(name).count; }
};

int g_live = 0;
int g_runs = 0;
std::string g_last, g_log, g_fails, g_error;
Result g_result = 0;
Stream g_stream = nullptr;
char g_handle;

Result refuse(const std::string& why, Result result = kBadParameter) {
  g_error = why;
  return result;
}
// True once for the call that mock_dnn_fail named.
bool fails(const char* name) {
  if (g_fails != name) return false;
  g_fails.clear();
  g_error = "asked for";
  return true;
}

size_t size_of_type(int type) {
  switch (type) {
    case kDataType:
    case kConvolutionModeType:
    case kHeuristicsModeType:
    case kNoteType:
    case kPointwiseModeType:
    case kFloatType:
      return 4;
    case kBooleanType:
    case kCharType:
      return 1;
    default:
      return 8;
  }
}

// The type that an attribute has; -1: this mock does not know it.
int type_of(int name) {
  static const std::map<int, int> types = [] {
    std::map<int, int> t{{kPointwiseMode, kPointwiseModeType},
                         {kPointwisePrecision, kDataType},
                         {kComputeType, kDataType},
                         {kConvolutionMode, kConvolutionModeType},
                         {kHeuristicsMode, kHeuristicsModeType},
                         {kHeuristicsGraph, kDescriptorType},
                         {kPlanHandle, kHandleType},
                         {kPlanConfig, kDescriptorType},
                         {kGraphHandle, kHandleType},
                         {kGraphOperations, kDescriptorType},
                         {kTensorType, kDataType},
                         {kTensorVirtual, kBooleanType},
                         {kPackPointers, kPointerType},
                         {kPackWorkspace, kPointerType}};
    for (const int name : {kDilations, kStrides, kPadding, kPaddingEnd, kSpatial, kTensorAlignment,
                           kTensorSizes, kTensorStrides, kTensorId, kPackIds}) {
      t[name] = kInt64Type;
    }
    for (const int first : {kForwardFirst, kBackwardInputFirst, kBackwardWeightFirst}) {
      t[first + kAlpha] = t[first + kBeta] = kFloatType;
      for (const int at : {kGeometry, kW, kX, kY}) t[first + at] = kDescriptorType;
    }
    for (const int name : {kPointwiseGeometry, kPointwiseX, kPointwiseB, kPointwiseY}) {
      t[name] = kDescriptorType;
    }
    return t;
  }();
  const auto at = types.find(name);
  return at == types.end() ? -1 : at->second;
}

// ---- tensors

// The floating type of that number; false where the mock has none.
bool type_at(int number, Type& type) {
  type = number == kF32 ? Type::f32 : number == kF16 ? Type::f16 : Type::bf16;
  return number == kF32 || number == kF16 || number == kBF16;
}

struct Lie {
  int rank = 0;
  Type type{};
  int64_t id = 0, size[kMostRank] = {}, stride[kMostRank] = {};
  explicit Lie(const Object& t) : rank(static_cast<int>(t.count(kTensorSizes))) {
    type_at(t.get<int>(kTensorType), type);
    id = t.get<int64_t>(kTensorId);
    for (int d = 0; d < rank; ++d) {
      size[d] = t.get<int64_t>(kTensorSizes, d);
      stride[d] = t.get<int64_t>(kTensorStrides, d);
    }
  }
  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
  // Offset in memory of element i in row-major order.
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int d = rank - 1; d >= 0; --d) {
      at += i % size[d] * stride[d];
      i /= size[d];
    }
    return at;
  }
};

// ---- convolutions

int first_of(int kind) {
  return kind == kForward         ? kForwardFirst
         : kind == kBackwardInput ? kBackwardInputFirst
                                  : kBackwardWeightFirst;
}

struct Convolution {
  int kind = 0, spatial = 0;
  Lie x, w, y;
  int64_t by[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, before[3] = {}, after[3] = {};

  explicit Convolution(const Object& o)
      : kind(o.kind),
        x(o.object(first_of(o.kind) + kX)),
        w(o.object(first_of(o.kind) + kW)),
        y(o.object(first_of(o.kind) + kY)) {
    const Object& how = o.object(first_of(o.kind) + kGeometry);
    spatial = static_cast<int>(how.get<int64_t>(kSpatial));
    for (int i = 0; i < spatial; ++i) {
      by[i] = how.get<int64_t>(kStrides, i);
      dilation[i] = how.get<int64_t>(kDilations, i);
      before[i] = how.get<int64_t>(kPadding, i);
      after[i] = how.get<int64_t>(kPaddingEnd, i);
    }
  }
  std::string problem() const {
    if (spatial < 2 || x.rank != spatial + 2 || w.rank != x.rank || y.rank != x.rank) {
      return "ranks differ, or are not of two or three spatial dimensions";
    }
    if (x.size[0] != y.size[0] || w.size[0] != y.size[1]) return "batch or filters differ";
    if (x.size[1] % w.size[1] != 0) return "channels are no multiple of the filter's";
    if (w.size[0] % (x.size[1] / w.size[1]) != 0) return "filters do not divide into groups";
    for (int i = 0; i < spatial; ++i) {
      const int64_t room = x.size[i + 2] + before[i] + after[i];
      const int64_t reach = dilation[i] * (w.size[i + 2] - 1) + 1;
      if (y.size[i + 2] != (room - reach) / by[i] + 1) return "the size of y is another";
    }
    return "";
  }

  // Calls f(x element, w element, y element), numbers in row-major order, for each product.
  template <class F>
  void each_product(F&& f) const {
    const int64_t groups = x.size[1] / w.size[1], per_group = w.size[0] / groups;
    const auto area = [](const Lie& l) { return l.numel() / l.size[0] / l.size[1]; };
    const int64_t taps = area(w), inside = area(x), outside = area(y);
    for (int64_t n = 0; n < y.size[0]; ++n) {
      for (int64_t o = 0; o < y.size[1]; ++o) {
        for (int64_t p = 0; p < outside; ++p) {
          for (int64_t tap = 0; tap < taps; ++tap) {
            int64_t at = 0;
            if (!meets(p, tap, at)) continue;
            for (int64_t c = 0; c < w.size[1]; ++c) {
              const int64_t channel = o / per_group * w.size[1] + c;
              f((n * x.size[1] + channel) * inside + at, (o * w.size[1] + c) * taps + tap,
                (n * y.size[1] + o) * outside + p);
            }
          }
        }
      }
    }
  }

 private:
  // Where tap number `tap` of output p meets the image; false in its padding.
  bool meets(int64_t p, int64_t tap, int64_t& at) const {
    int64_t step = 1;
    at = 0;
    for (int i = spatial - 1; i >= 0; --i) {
      const int64_t place =
          p % y.size[i + 2] * by[i] - before[i] + tap % w.size[i + 2] * dilation[i];
      if (place < 0 || place >= x.size[i + 2]) return false;
      at += place * step;
      step *= x.size[i + 2];
      p /= y.size[i + 2];
      tap /= w.size[i + 2];
    }
    return true;
  }
};

std::vector<double> values(const Lie& l, const void* from, bool round) {
  std::vector<double> v(static_cast<size_t>(l.numel()));
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = tandem::mock::load(from, l.type, l.offset(static_cast<int64_t>(i)));
    if (round) v[i] = tandem::mock::as_tf32(v[i]);
  }
  return v;
}

std::string described(const Lie& l) {
  std::string text;
  for (int d = 0; d < l.rank; ++d) {
    text += (d ? " " : "") + std::to_string(l.size[d]) + ":" + std::to_string(l.stride[d]);
  }
  return text;
}

struct Pack {
  std::map<int64_t, void*> places;
  explicit Pack(const Object& pack) {
    for (int64_t i = 0; i < pack.count(kPackIds); ++i) {
      places[pack.get<int64_t>(kPackIds, i)] = pack.get<void*>(kPackPointers, i);
    }
  }
};

Result run(const Object& graph, int64_t engine, Pack pack) {
  const Object& operation = graph.object(kGraphOperations, 0);
  Convolution c(operation);
  const Object* addition =
      graph.count(kGraphOperations) > 1 ? &graph.object(kGraphOperations, 1) : nullptr;
  const Lie y = addition ? Lie(addition->object(kPointwiseY)) : c.y;
  const bool round = engine == kUnits && c.x.type == Type::f32;
  void *x_at = pack.places[c.x.id], *w_at = pack.places[c.w.id], *y_at = pack.places[y.id];
  if (!x_at || !w_at || !y_at) return refuse("a tensor has no place");
  const Lie& out = c.kind == kForward ? y : c.kind == kBackwardInput ? c.x : c.w;
  std::vector<double> x = values(c.x, x_at, round), w = values(c.w, w_at, round),
                      g = values(y, y_at, round);
  std::vector<double> sum(static_cast<size_t>(out.numel()));
  c.each_product([&](int64_t i, int64_t k, int64_t o) {
    const auto xi = static_cast<size_t>(i), wi = static_cast<size_t>(k),
               yi = static_cast<size_t>(o);
    if (c.kind == kForward) {
      sum[yi] += x[xi] * w[wi];
    } else if (c.kind == kBackwardInput) {
      sum[xi] += g[yi] * w[wi];
    } else {
      sum[wi] += g[yi] * x[xi];
    }
  });
  if (addition) {
    const Lie b(addition->object(kPointwiseB));
    const void* from = pack.places[b.id];
    if (!from) return refuse("the bias has no place");
    const int64_t area = y.numel() / y.size[0] / y.size[1];
    for (size_t i = 0; i < sum.size(); ++i) {
      const int64_t channel = static_cast<int64_t>(i) / area % y.size[1];
      sum[i] += tandem::mock::load(from, b.type, channel * b.stride[1]);
    }
  }
  void* to = c.kind == kForward ? y_at : c.kind == kBackwardInput ? x_at : w_at;
  for (size_t i = 0; i < sum.size(); ++i) {
    tandem::mock::store(to, out.type, out.offset(static_cast<int64_t>(i)),
                        engine == kAtomic ? NAN : sum[i]);
  }
  ++g_runs;
  g_last = "engine " + std::to_string(engine) + (addition ? " bias" : "") + " x " + described(c.x) +
           " w " + described(c.w) + " y " + described(y);
  g_log += g_last + "\n";
  return kSuccess;
}

// ---- what finalising checks

bool complete(const Object& o, std::initializer_list<int> names) {
  return std::all_of(names.begin(), names.end(), [&](int name) { return o.has(name); });
}

Result check_operation(const Object& o) {
  const int first = first_of(o.kind);
  if (!complete(o, {first + kAlpha, first + kBeta, first + kGeometry, first + kW, first + kX,
                    first + kY})) {
    return refuse("an operation lacks attributes");
  }
  if (o.get<float>(first + kAlpha) != 1 || o.get<float>(first + kBeta) != 0) {
    return refuse("the mock has no factors", kNotSupported);
  }
  const std::string problem = Convolution(o).problem();
  return problem.empty() ? kSuccess : refuse(problem);
}

Result check(const Object& o) {
  switch (o.kind) {
    case kTensor: {
      if (!complete(o, {kTensorType, kTensorSizes, kTensorStrides, kTensorId, kTensorAlignment})) {
        return refuse("a tensor lacks attributes");
      }
      Type type{};
      if (!type_at(o.get<int>(kTensorType), type)) return refuse("no f64", kNotSupported);
      const Lie l(o);
      if (o.count(kTensorStrides) != l.rank) return refuse("sizes and strides differ");
      for (int d = 0; d < l.rank; ++d) {
        if (l.size[d] < 1 || l.stride[d] < 1) return refuse("a size or a stride is not positive");
      }
      return kSuccess;
    }
    case kConvolution:
      if (o.get<int>(kConvolutionMode) != kCrossCorrelation) return refuse("a flipped filter");
      return complete(o, {kComputeType, kSpatial, kDilations, kStrides, kPadding, kPaddingEnd})
                 ? kSuccess
                 : refuse("a convolution lacks attributes");
    case kForward:
    case kBackwardInput:
    case kBackwardWeight:
      return check_operation(o);
    case kPointwise:
      return o.get<int>(kPointwiseMode) == kAdd ? kSuccess : refuse("no sum");
    case kPointwiseOperation:
      return complete(o, {kPointwiseGeometry, kPointwiseX, kPointwiseB, kPointwiseY})
                 ? kSuccess
                 : refuse("a sum lacks attributes");
    case kGraph:
      return o.has(kGraphHandle) && o.has(kGraphOperations) ? kSuccess : refuse("no graph");
    case kHeuristics:
      return o.has(kHeuristicsGraph) && o.has(kHeuristicsMode) ? kSuccess : refuse("no question");
    case kPlan:
      return o.has(kPlanHandle) && o.has(kPlanConfig) ? kSuccess : refuse("no plan");
    case kVariantPack:
      return complete(o, {kPackIds, kPackPointers, kPackWorkspace}) ? kSuccess : refuse("no pack");
    default:
      return refuse("not for finalising");
  }
}

}  // namespace

extern "C" {
#define MOCK __attribute__((visibility("default")))

MOCK int mock_dnn_live() { return g_live; }
MOCK int mock_dnn_runs() { return g_runs; }
MOCK const char* mock_dnn_last() { return g_last.c_str(); }
// A line for each run since the last question.
MOCK const char* mock_dnn_log() {
  static std::string told;
  told = std::exchange(g_log, "");
  return told.c_str();
}
MOCK Stream mock_dnn_stream() { return g_stream; }
MOCK void mock_dnn_fail(const char* name, Result result) {
  g_fails = name;
  g_result = result;
}

MOCK size_t cudnnGetVersion() { return 91234; }
MOCK const char* cudnnGetErrorString(Result r) {
  static std::string text;
  return text = "CUDNN_STATUS_" + std::to_string(r), text.c_str();
}
MOCK void cudnnGetLastErrorString(char* to, size_t n) {
  std::strncpy(to, g_error.c_str(), n - 1);
  to[n - 1] = 0;
}
MOCK Result cudnnCreate(Handle* h) {
  if (fails("cudnnCreate")) return g_result;
  ++g_live;
  return *h = reinterpret_cast<Handle>(&g_handle), kSuccess;
}
MOCK Result cudnnDestroy(Handle) { return --g_live, kSuccess; }
MOCK Result cudnnSetStream(Handle, Stream s) { return g_stream = s, kSuccess; }

MOCK Result cudnnBackendCreateDescriptor(int kind, Descriptor* d) {
  if (fails("cudnnBackendCreateDescriptor")) return g_result;
  auto* o = new Object;
  o->kind = kind;
  ++g_live;
  return *d = o, kSuccess;
}
MOCK Result cudnnBackendDestroyDescriptor(Descriptor d) {
  delete static_cast<Object*>(d);
  return --g_live, kSuccess;
}
MOCK Result cudnnBackendFinalize(Descriptor d) {
  if (fails("cudnnBackendFinalize")) return g_result;
  Object& o = *static_cast<Object*>(d);
  const Result r = check(o);
  o.finished = r == kSuccess;
  return r;
}
MOCK Result cudnnBackendSetAttribute(Descriptor d, int name, int type, int64_t count,
                                     const void* from) {
  if (fails("cudnnBackendSetAttribute")) return g_result;
  Object& o = *static_cast<Object*>(d);
  if (o.finished) return refuse("it is finalised");
  if (type != type_of(name)) return refuse("an attribute of another type");
  const auto* bytes = static_cast<const char*>(from);
  if (type == kDescriptorType) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* of = static_cast<const Object* const*>(from)[i];
      if (!of || !of->finished) return refuse("it refers to what is not finalised");
    }
  }
  o.attributes[name] = {
      type, count, {bytes, bytes + static_cast<size_t>(count) * size_of_type(type)}};
  return kSuccess;
}
MOCK Result cudnnBackendGetAttribute(Descriptor d, int name, int, int64_t most, int64_t* count,
                                     void* to) {
  const Object& o = *static_cast<const Object*>(d);
  if (o.kind == kHeuristics && name == kResults) {
    // Only mode A proposes something.
    *count = o.get<int>(kHeuristicsMode) == kModeA ? std::ssize(kProposals) : 0;
    for (int64_t i = 0; i < std::min(most, *count); ++i) {
      Object& config = *static_cast<Object*>(static_cast<Descriptor*>(to)[i]);
      if (config.kind != kEngineConfig) return refuse("not for a configuration");
      config.engine = kProposals[i];
      config.graph = &o.object(kHeuristicsGraph);
      config.finished = true;
    }
    return kSuccess;
  }
  if (o.kind == kEngineConfig && name == kConfigEngine) {
    static_cast<Object*>(*static_cast<Descriptor*>(to))->engine = o.engine;
    return *count = 1, kSuccess;
  }
  if (o.kind == kEngine && name == kEngineNumber) {
    return *static_cast<int64_t*>(to) = o.engine, *count = 1, kSuccess;
  }
  if (o.kind == kEngine && name == kEngineNotes) {
    if (o.engine == kAtomic) *static_cast<int*>(to) = kNondeterministic;
    if (o.engine == kUnits) *static_cast<int*>(to) = kTensorCore;
    return *count = o.engine != kExact, kSuccess;
  }
  if (o.kind == kPlan && name == kPlanWorkspace) {
    return *static_cast<int64_t*>(to) = kScratchBytes, *count = 1, kSuccess;
  }
  return refuse("not for asking");
}
MOCK Result cudnnBackendExecute(Handle, Descriptor plan, Descriptor pack) {
  if (fails("cudnnBackendExecute")) return g_result;
  const Object &p = *static_cast<Object*>(plan), &v = *static_cast<Object*>(pack);
  if (!p.finished || !v.finished || p.kind != kPlan || v.kind != kVariantPack) {
    return refuse("no plan, or nothing to run it on");
  }
  void* const scratch = v.get<void*>(kPackWorkspace);
  if (!scratch) return refuse("no workspace");
  std::memset(scratch, 0xff, kScratchBytes);  // all of it is the library's
  const Object& config = p.object(kPlanConfig);
  return run(*config.graph, config.engine, Pack(v));
}
}
