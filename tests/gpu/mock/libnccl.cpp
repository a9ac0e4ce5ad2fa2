// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 for tests (tests/dist/devices_test.cpp): ranks are threads of one process, a call
// waits until all of them have made it, and what they ask for must agree.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/backend/gpu/cuda/nccl_abi_internal.h"
#include "tests/gpu/mock/values.h"

namespace {

using namespace tandem::gpu::cuda;
using tandem::mock::Type;

constexpr Result kInvalid = 4, kRemote = 6;  // ncclInvalidArgument, ncclRemoteError
constexpr auto kPatience = std::chrono::seconds(20);

struct Asked {
  std::string kind;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  int type = 0, sum = 0, root = 0;
};
struct Group {
  int size = 0, joined = 0, arrived = 0;
  uint64_t round = 0;
  Result result = kSuccess;
  std::vector<Asked> asked;
};
struct Comm {
  Group* group;
  int rank;
};

std::mutex g_lock;
std::condition_variable g_changed;
std::map<std::string, std::unique_ptr<Group>> g_groups;
int g_ids = 0, g_live = 0, g_runs = 0;
std::string g_fails;
Result g_result = kSuccess;

size_t bytes_of(int type) {
  switch (type) {
    case kNcclInt8:
    case kNcclUint8:
      return 1;
    case kNcclFloat16:
    case kNcclBfloat16:
      return 2;
    case kNcclInt32:
    case kNcclFloat32:
      return 4;
    default:
      return 8;
  }
}
Type floating(int type) {
  return type == kNcclFloat16    ? Type::f16
         : type == kNcclBfloat16 ? Type::bf16
         : type == kNcclFloat64  ? Type::f64
                                 : Type::f32;
}
double load_any(const void* from, int type, size_t at) {
  if (type == kNcclInt64) return static_cast<double>(static_cast<const int64_t*>(from)[at]);
  if (type == kNcclInt32) return static_cast<const int32_t*>(from)[at];
  if (type == kNcclUint8) return static_cast<const uint8_t*>(from)[at];
  if (type == kNcclInt8) return static_cast<const int8_t*>(from)[at];
  return tandem::mock::load(from, floating(type), static_cast<int64_t>(at));
}
void store_any(void* to, int type, size_t at, double v) {
  if (type == kNcclInt64)
    static_cast<int64_t*>(to)[at] = static_cast<int64_t>(v);
  else if (type == kNcclInt32)
    static_cast<int32_t*>(to)[at] = static_cast<int32_t>(v);
  else if (type == kNcclUint8)
    static_cast<uint8_t*>(to)[at] = static_cast<uint8_t>(v);
  else if (type == kNcclInt8)
    static_cast<int8_t*>(to)[at] = static_cast<int8_t>(v);
  else
    tandem::mock::store(to, floating(type), static_cast<int64_t>(at), v);
}

// Sums of all ranks' elements from `from` on.
std::vector<double> summed(const std::vector<Asked>& all, size_t from, size_t count) {
  std::vector<double> out(count);
  for (size_t e = 0; e < count; ++e) {
    double v = load_any(all[0].in, all[0].type, from + e);
    for (size_t r = 1; r < all.size(); ++r) {
      const double w = load_any(all[r].in, all[0].type, from + e);
      v = all[0].sum == kNcclSum ? v + w : all[0].sum == kNcclMin ? std::min(v, w) : std::max(v, w);
    }
    out[e] = v;
  }
  return out;
}
void compute(std::vector<Asked>& all) {
  const Asked& a = all[0];
  const size_t bytes = a.count * bytes_of(a.type);
  if (a.kind == "broadcast") {
    const std::string root(static_cast<const char*>(all[static_cast<size_t>(a.root)].in), bytes);
    for (Asked& x : all) std::memcpy(x.out, root.data(), bytes);
  } else if (a.kind == "all_gather") {
    std::string whole;
    for (const Asked& x : all) whole.append(static_cast<const char*>(x.in), bytes);
    for (Asked& x : all) std::memcpy(x.out, whole.data(), whole.size());
  } else {
    const bool scatter = a.kind == "reduce_scatter";
    const std::vector<double> sum = summed(all, 0, a.count * (scatter ? all.size() : 1));
    for (size_t r = 0; r < all.size(); ++r)
      for (size_t e = 0; e < a.count; ++e)
        store_any(all[r].out, a.type, e, sum[e + (scatter ? r * a.count : 0)]);
  }
}
bool agree(const std::vector<Asked>& all) {
  for (const Asked& x : all)
    if (x.kind != all[0].kind || x.count != all[0].count || x.type != all[0].type ||
        x.sum != all[0].sum || x.root != all[0].root)
      return false;
  return true;
}

Result call(NcclComm comm, Asked asked) {
  const auto* c = reinterpret_cast<Comm*>(comm);
  std::unique_lock hold(g_lock);
  if (g_fails == asked.kind) {
    g_fails.clear();
    return g_result;
  }
  Group& g = *c->group;
  const uint64_t round = g.round;
  g.asked[static_cast<size_t>(c->rank)] = std::move(asked);
  if (++g.arrived == g.size) {
    g.result = agree(g.asked) ? kSuccess : kInvalid;
    if (g.result == kSuccess) compute(g.asked);
    ++g_runs;
    g.arrived = 0;
    ++g.round;
    g_changed.notify_all();
  } else if (!g_changed.wait_for(hold, kPatience, [&] { return g.round != round; })) {
    return kRemote;
  }
  return g.result;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result ncclGetVersion(int* version) { return *version = 22800, kSuccess; }
const char* ncclGetErrorString(Result r) {
  return r == kInvalid ? "invalid argument" : r == kRemote ? "remote process exited" : "failure";
}
Result ncclGetUniqueId(NcclId* id) {
  const std::lock_guard hold(g_lock);
  std::memset(id->bytes, 0, sizeof id->bytes);
  const std::string name = "group " + std::to_string(++g_ids);
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}
Result ncclCommInitRank(NcclComm* comm, int size, NcclId id, int rank) {
  std::unique_lock hold(g_lock);
  if (g_fails == "join") {  // on all ranks, as for a device that two ranks share
    return g_result;
  }
  auto& g = g_groups[id.bytes];
  if (!g) {
    g = std::make_unique<Group>();
    g->size = size;
    g->asked.resize(static_cast<size_t>(size));
  }
  if (g->size != size || rank < 0 || rank >= size) return kInvalid;
  ++g->joined;
  g_changed.notify_all();
  if (!g_changed.wait_for(hold, kPatience, [&] { return g->joined >= g->size; })) return kRemote;
  ++g_live;
  *comm = reinterpret_cast<NcclComm>(new Comm{g.get(), rank});
  return kSuccess;
}
Result ncclCommDestroy(NcclComm comm) {
  const std::lock_guard hold(g_lock);
  --g_live;
  delete reinterpret_cast<Comm*>(comm);
  return kSuccess;
}
Result ncclCommAbort(NcclComm comm) { return ncclCommDestroy(comm); }
Result ncclAllReduce(const void* in, void* out, size_t count, int type, int sum, NcclComm comm,
                     Stream) {
  return call(comm, {"all_reduce", in, out, count, type, sum, 0});
}
Result ncclBroadcast(const void* in, void* out, size_t count, int type, int root, NcclComm comm,
                     Stream) {
  return call(comm, {"broadcast", in, out, count, type, 0, root});
}
Result ncclAllGather(const void* in, void* out, size_t count, int type, NcclComm comm, Stream) {
  return call(comm, {"all_gather", in, out, count, type, 0, 0});
}
Result ncclReduceScatter(const void* in, void* out, size_t count, int type, int sum, NcclComm comm,
                         Stream) {
  return call(comm, {"reduce_scatter", in, out, count, type, sum, 0});
}

int mock_nccl_runs() { return g_runs; }
int mock_nccl_live() { return g_live; }
void mock_nccl_fail(const char* name, int result) {
  const std::lock_guard hold(g_lock);
  g_fails = name;
  g_result = result;
}

}  // extern "C"
#pragma GCC visibility pop
