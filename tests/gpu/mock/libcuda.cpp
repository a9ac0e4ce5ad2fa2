// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 for tests (cuda_mock_test.cpp): one device of the host's memory that does at once
// what it is told, records while a stream is captured, and knows a single kernel, td_fill_f32. It
// shows what the cuda driver calls and how it takes errors, not that CUDA understands it.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tandem/backend/gpu/cuda/abi_internal.h"

namespace {

using namespace tandem::gpu::cuda;

struct MockGraph {
  std::vector<std::function<void()>> steps;
};
struct MockStream {
  MockGraph* captured = nullptr;
};
struct MockEvent {
  bool recorded = false;
  float time = 0;
};

int g_live = 0;          // objects that were made and not given back
float g_clock = 0;       // a millisecond passes with each record
std::string g_fails;     // the next call of this name gives
Result g_result = 0;     // this
bool g_current = false;  // a context is set
char g_context, g_module, g_function;

Result call(const char* name, const std::function<Result()>& f) {
  if (g_fails == name) {
    g_fails.clear();
    return g_result;
  }
  return f();
}
// One that needs a context.
Result in_context(const char* name, const std::function<Result()>& f) {
  return g_current ? call(name, f) : 201;  // CUDA_ERROR_INVALID_CONTEXT
}
Result work(const char* name, Stream stream, std::function<void()> f) {
  return in_context(name, [&] {
    MockStream* s = reinterpret_cast<MockStream*>(stream);
    if (s->captured)
      s->captured->steps.push_back(std::move(f));
    else
      f();
    return kSuccess;
  });
}
void* host(Pointer p) { return reinterpret_cast<void*>(p); }
template <class T, class Handle>
Result make(const char* name, Handle* place) {
  return in_context(name, [&] {
    *place = reinterpret_cast<Handle>(new T);
    ++g_live;
    return kSuccess;
  });
}
template <class T, class Handle>
Result destroy(const char* name, Handle h) {
  return in_context(name, [&] {
    delete reinterpret_cast<T*>(h);
    --g_live;
    return kSuccess;
  });
}

}  // namespace

extern "C" {
#define MOCK __attribute__((visibility("default")))

MOCK int mock_live() { return g_live; }
MOCK void mock_fail(const char* name, Result result) {
  g_fails = name;
  g_result = result;
}

MOCK Result cuInit(unsigned) {
  return call("cuInit", [] { return kSuccess; });
}
MOCK Result cuDriverGetVersion(int* v) { return *v = 13010, kSuccess; }
MOCK Result cuGetErrorName(Result r, const char** s) {
  static std::string text;
  text = "CUDA_ERROR_" + std::to_string(r);
  return *s = text.c_str(), kSuccess;
}
MOCK Result cuGetErrorString(Result, const char** s) { return *s = "words", kSuccess; }
MOCK Result cuDeviceGetCount(int* n) { return *n = 1, kSuccess; }
MOCK Result cuDeviceGet(DeviceNumber* d, int i) { return *d = 40 + i, kSuccess; }
MOCK Result cuDeviceGetName(char* s, int n, DeviceNumber d) {
  std::strncpy(s, d == 40 ? "mock device" : "wrong number", static_cast<size_t>(n));
  return kSuccess;
}
MOCK Result cuDeviceTotalMem_v2(size_t* n, DeviceNumber) { return *n = size_t{1} << 30, kSuccess; }
MOCK Result cuDeviceGetAttribute(int* v, int a, DeviceNumber) {
  *v = a == kAttributeThreads  ? 1024
       : a == kAttributeShared ? 232448
       : a == kAttributeUnits  ? 132
       : a == kAttributeMajor  ? 9
                               : 0;
  return kSuccess;
}
MOCK Result cuDevicePrimaryCtxRetain(Context* c, DeviceNumber) {
  ++g_live;
  return *c = reinterpret_cast<Context>(&g_context), kSuccess;
}
MOCK Result cuDevicePrimaryCtxRelease_v2(DeviceNumber) { return --g_live, kSuccess; }
MOCK Result cuCtxSetCurrent(Context c) { return g_current = c != nullptr, kSuccess; }
MOCK Result cuCtxSynchronize() {
  return in_context("cuCtxSynchronize", [] { return kSuccess; });
}
MOCK Result cuMemGetInfo_v2(size_t* f, size_t* t) { return *f = 1 << 20, *t = 1 << 30, kSuccess; }
MOCK Result cuMemAlloc_v2(Pointer* p, size_t n) {
  return in_context("cuMemAlloc_v2", [&] {
    *p = reinterpret_cast<Pointer>(std::aligned_alloc(256, (n + 255) / 256 * 256));
    ++g_live;
    return kSuccess;
  });
}
MOCK Result cuMemFree_v2(Pointer p) { return std::free(host(p)), --g_live, kSuccess; }
MOCK Result cuMemHostAlloc(void** p, size_t n, unsigned) {
  return *p = std::malloc(n), ++g_live, kSuccess;
}
MOCK Result cuMemFreeHost(void* p) { return std::free(p), --g_live, kSuccess; }
MOCK Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t n, Stream s) {
  return work("cuMemcpyHtoDAsync_v2", s, [=] { std::memcpy(host(to), from, n); });
}
MOCK Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t n, Stream s) {
  return work("cuMemcpyDtoHAsync_v2", s, [=] { std::memcpy(to, host(from), n); });
}
MOCK Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t n, Stream s) {
  return work("cuMemcpyDtoDAsync_v2", s, [=] { std::memcpy(host(to), host(from), n); });
}
MOCK Result cuMemsetD8Async(Pointer to, unsigned char v, size_t n, Stream s) {
  return work("cuMemsetD8Async", s, [=] { std::memset(host(to), v, n); });
}
MOCK Result cuStreamCreate(Stream* s, unsigned flags) {
  if (flags != kStreamNonBlocking) return kInvalidValue;
  return make<MockStream>("cuStreamCreate", s);
}
MOCK Result cuStreamDestroy_v2(Stream s) { return destroy<MockStream>("cuStreamDestroy_v2", s); }
MOCK Result cuStreamSynchronize(Stream) {
  return in_context("cuStreamSynchronize", [] { return kSuccess; });
}
MOCK Result cuStreamWaitEvent(Stream, Event, unsigned flags) {
  return flags == 0 ? kSuccess : kInvalidValue;
}
MOCK Result cuEventCreate(Event* e, unsigned) { return make<MockEvent>("cuEventCreate", e); }
MOCK Result cuEventDestroy_v2(Event e) { return destroy<MockEvent>("cuEventDestroy_v2", e); }
MOCK Result cuEventRecord(Event e, Stream) {
  *reinterpret_cast<MockEvent*>(e) = {true, ++g_clock};
  return kSuccess;
}
MOCK Result cuEventQuery(Event) {
  return call("cuEventQuery", [] { return kSuccess; });
}
MOCK Result cuEventSynchronize(Event) { return kSuccess; }
MOCK Result cuEventElapsedTime(float* ms, Event a, Event b) {
  const MockEvent *x = reinterpret_cast<MockEvent*>(a), *y = reinterpret_cast<MockEvent*>(b);
  if (!x->recorded || !y->recorded) return kInvalidHandle;
  return *ms = y->time - x->time, kSuccess;
}
MOCK Result cuModuleLoadData(Module* m, const void* image) {
  if (std::memcmp(image, "\177ELF", 4) != 0) return 200;  // CUDA_ERROR_INVALID_IMAGE
  return *m = reinterpret_cast<Module>(&g_module), ++g_live, kSuccess;
}
MOCK Result cuModuleUnload(Module) { return --g_live, kSuccess; }
MOCK Result cuModuleGetFunction(Function* f, Module, const char* name) {
  if (std::strcmp(name, "td_fill_f32") != 0) return 500;  // CUDA_ERROR_NOT_FOUND
  return *f = reinterpret_cast<Function>(&g_function), kSuccess;
}
MOCK Result cuFuncSetAttribute(Function, int attribute, int bytes) {
  return attribute == kFunctionShared && bytes > 0 ? kSuccess : kInvalidValue;
}
MOCK Result cuLaunchKernel(Function, unsigned bx, unsigned by, unsigned bz, unsigned tx,
                           unsigned ty, unsigned tz, unsigned shared, Stream s, void** arguments,
                           void** extra) {
  if (by * bz * ty * tz != 1 || shared || extra) return kInvalidValue;
  float* y = *static_cast<float**>(arguments[0]);
  const float v = *static_cast<float*>(arguments[1]);
  const auto n = *static_cast<int64_t*>(arguments[2]);
  return work("cuLaunchKernel", s, [=] {
    for (int64_t i = 0; i < n && i < int64_t{bx} * tx; ++i) y[i] = v;
  });
}
MOCK Result cuStreamBeginCapture_v2(Stream s, int mode) {
  if (mode != kCaptureThreadLocal) return kInvalidValue;
  return call("cuStreamBeginCapture_v2", [&] {
    reinterpret_cast<MockStream*>(s)->captured = new MockGraph;
    return ++g_live, kSuccess;
  });
}
MOCK Result cuStreamEndCapture(Stream s, Graph* g) {
  MockStream* stream = reinterpret_cast<MockStream*>(s);
  *g = reinterpret_cast<Graph>(stream->captured);
  stream->captured = nullptr;
  return *g ? kSuccess : 903;  // CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
}
MOCK Result cuGraphInstantiateWithFlags(GraphExec* e, Graph g, unsigned long long) {
  return call("cuGraphInstantiateWithFlags", [&] {
    *e = reinterpret_cast<GraphExec>(new MockGraph(*reinterpret_cast<MockGraph*>(g)));
    return ++g_live, kSuccess;
  });
}
MOCK Result cuGraphDestroy(Graph g) { return destroy<MockGraph>("cuGraphDestroy", g); }
MOCK Result cuGraphExecDestroy(GraphExec g) { return destroy<MockGraph>("cuGraphExecDestroy", g); }
MOCK Result cuGraphLaunch(GraphExec g, Stream) {
  return call("cuGraphLaunch", [&] {
    for (const auto& step : reinterpret_cast<MockGraph*>(g)->steps) step();
    return kSuccess;
  });
}
}
