// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/cuda/nccl_internal.h"

#include <fmt/format.h>

#include <cstring>

#include "tandem/backend/gpu/library_internal.h"

namespace tandem::gpu {

NcclLibrary open_nccl_library() {
  NcclLibrary l;
  const bool on = open_functions(
      "NCCL", {"libnccl.so.2"},
      [&](const Library& library, std::string& missing) {
#define TD_NCCL_RESOLVE(name, parameters) resolve_symbol(library, #name, &l.api.name, missing);
        TD_NCCL_FUNCTIONS(TD_NCCL_RESOLVE)
#undef TD_NCCL_RESOLVE
        resolve_symbol(library, "ncclGetErrorString", &l.api.ncclGetErrorString, missing);
      },
      l.report);
  int v = 0;
  if (on && l.api.ncclGetVersion(&v) == cuda::kSuccess)
    l.report.version = fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  return l;
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary* const library = new NcclLibrary(open_nccl_library());
  return *library;
}

namespace {

// -1: none of NCCL's.
int nccl_type(DType t) {
  switch (t) {
    case DType::i8:
      return cuda::kNcclInt8;
    case DType::u8:
      return cuda::kNcclUint8;
    case DType::i32:
      return cuda::kNcclInt32;
    case DType::i64:
      return cuda::kNcclInt64;
    case DType::f16:
      return cuda::kNcclFloat16;
    case DType::bf16:
      return cuda::kNcclBfloat16;
    case DType::f32:
      return cuda::kNcclFloat32;
    case DType::f64:
      return cuda::kNcclFloat64;
    default:
      return -1;
  }
}
int nccl_sum(DeviceCall::Sum s) {
  return s == DeviceCall::Sum::sum   ? cuda::kNcclSum
         : s == DeviceCall::Sum::min ? cuda::kNcclMin
                                     : cuda::kNcclMax;
}

// What all calls need: the library, and the device's context on the calling thread.
struct NcclDevice {
  const cuda::NcclApi& nccl;
  const cuda::Api& api;
  cuda::Context context;

  template <class Function, class... Args>
  Status call(const char* name, Function function, Args... arguments) const {
    if (api.cuCtxSetCurrent(context) != cuda::kSuccess)
      return {Code::driver, fmt::format("cuCtxSetCurrent before {} failed", name)};
    const cuda::Result r = function(arguments...);
    if (r == cuda::kSuccess) return {};
    return {Code::driver, fmt::format("{}: {}", name, nccl.ncclGetErrorString(r))};
  }
};
// A function of the library that `device_` has.
#define TD_NCCL(name, ...) device_.call(#name, device_.nccl.name, __VA_ARGS__)

class NcclRank final : public RanksComm {
 public:
  explicit NcclRank(const NcclDevice& device) : device_(device) {}
  ~NcclRank() override {
    if (comm_) (void)TD_NCCL(ncclCommDestroy, comm_);
  }
  Status join(const cuda::NcclId& id, int rank, int size) {
    return TD_NCCL(ncclCommInitRank, &comm_, size, id, rank);
  }
  Status call(const DeviceCall& c, StreamRef ref) override {
    const auto stream = reinterpret_cast<cuda::Stream>(ref);
    const auto n = static_cast<size_t>(c.count);
    const int type = nccl_type(c.dtype), sum = nccl_sum(c.sum);
    switch (c.kind) {
      case DeviceCall::Kind::all_reduce:
        return TD_NCCL(ncclAllReduce, c.in, c.out, n, type, sum, comm_, stream);
      case DeviceCall::Kind::broadcast:
        return TD_NCCL(ncclBroadcast, c.in, c.out, n, type, c.root, comm_, stream);
      case DeviceCall::Kind::all_gather:
        return TD_NCCL(ncclAllGather, c.in, c.out, n, type, comm_, stream);
      case DeviceCall::Kind::reduce_scatter:
        return TD_NCCL(ncclReduceScatter, c.in, c.out, n, type, sum, comm_, stream);
    }
    return {Code::bad_argument, "no such call of ranks"};
  }

 private:
  NcclDevice device_;
  cuda::NcclComm comm_ = nullptr;
};

class Nccl final : public RanksLibrary {
 public:
  explicit Nccl(const NcclDevice& device) : device_(device) {}
  bool takes(DType dtype) const override { return nccl_type(dtype) >= 0; }
  Status make_id(std::string& id) override {
    cuda::NcclId made{};
    TD_GPU_TRY(TD_NCCL(ncclGetUniqueId, &made));
    id.assign(made.bytes, sizeof made.bytes);
    return {};
  }
  Status join(const std::string& id, int rank, int size,
              std::unique_ptr<RanksComm>& made) override {
    cuda::NcclId of_group{};
    if (id.size() != sizeof of_group.bytes) return {Code::bad_argument, "an id of another library"};
    std::memcpy(of_group.bytes, id.data(), id.size());
    auto comm = std::make_unique<NcclRank>(device_);
    TD_GPU_TRY(comm->join(of_group, rank, size));
    made = std::move(comm);
    return {};
  }

 private:
  NcclDevice device_;
};
#undef TD_NCCL

}  // namespace

Status open_nccl(const NcclLibrary& library, const cuda::Api& api, cuda::Context context,
                 std::unique_ptr<RanksLibrary>& made) {
  if (!library.report.problem.empty()) return {Code::unavailable, library.report.problem};
  made = std::make_unique<Nccl>(NcclDevice{library.api, api, context});
  return {};
}

}  // namespace tandem::gpu
