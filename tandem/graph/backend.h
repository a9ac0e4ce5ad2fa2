// SPDX-License-Identifier: Apache-2.0
// A backend: the memory of its devices and what it can do beyond running kernels. Kernels are
// registered one by one with register_kernel(); docs/adding-a-backend.md goes through it all. What
// a device has no kernel for the host does, between copies that are counted here.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/graph/device_ranks.h"
#include "tandem/graph/op_def.h"
#include "tandem/graph/step_graph.h"
#include "tandem/tensor/device_memory.h"

namespace tandem {

/// What a kernel found wrong, as its device keeps it: the code of the row's text, the value, and
/// KernelCall::ticket of the call. The first one stays until it is taken.
struct DeviceError {
  int32_t code = 0;
  uint32_t ticket = 0;
  int64_t value = 0;
};

/// What a backend is besides its kernels. Members left null or false are what it cannot do.
struct Backend {
  DeviceMemory memory;
  /// A composite without a kernel is run whole by the host (one round trip) and not as its body
  /// (one call per op): better as long as a backend has few kernels.
  bool whole_composites = false;
  /// The first call of each op that the host runs is a warning in the log.
  bool announces_host_runs = false;
  /// Runs a fused loop of a compiled program: elementwise over `call.in`, in place where an output
  /// is an input's array. Without it programs for the device keep pointwise ops one by one.
  void (*run_loop)(const ScalarProgram& program, const KernelCall& call) = nullptr;
  /// Give and clear the error word of a device whose work is done; false: there is none. Asked when
  /// bytes come to the host and in synchronize(), so a kernel never waits for it.
  bool (*take_error)(int index, DeviceError& error) = nullptr;
  /// Calls work.put() and gives what that puts into the queue as one piece to be replayed: nothing
  /// runs yet. nullptr, with the reason in `why`, where that is not possible. Without it programs
  /// for the device are launched step by step.
  std::unique_ptr<StepGraph> (*record)(int index, RecordableWork& work, std::string& why) = nullptr;
  /// Can the device join those of other processes? The reason in `why` where it cannot.
  bool (*can_join_ranks)(int index, std::string& why) = nullptr;
  /// Join them: all ranks call it. nullptr, with the reason, where that fails. Without it calls of
  /// several ranks go through the host.
  std::unique_ptr<DeviceRanks> (*join_ranks)(int index, const RankPlace& place,
                                             std::string& why) = nullptr;
};

/// Make a backend known; throws Value as register_device_memory() does. Call it before the first
/// op, register its kernels with the kind that it gives.
TD_API DeviceKind register_backend(const Backend& backend);
/// That of a device other than the host; throws Unsupported where there is none.
TD_API const Backend& backend_of(Device device);
/// Can compiled programs for the device hold fused loops?
TD_API bool runs_loops(Device device);

/// Calls that the host ran for devices that have no kernel for them.
struct HostRuns {
  int64_t calls = 0, bytes = 0;                        ///< bytes copied in and out
  std::vector<std::pair<std::string, int64_t>> by_op;  ///< calls of each op, most first
};
/// All since the start or the last reset, of every thread.
TD_API HostRuns host_runs();
TD_API void reset_host_runs();
/// Let such calls throw Unsupported; TANDEM_HOST_RUNS=0 in the environment does so from the start.
/// Gives what was set before.
TD_API bool allow_host_runs(bool allow);

/// What the profiler adds to the names of such calls.
inline constexpr const char* kOnHostMark = " (on the host)";

// ---- for the dispatcher and Executable
void check_host_allowed(const KernelCall& call);
void count_on_host(const OpDef& op, Device device, int64_t bytes);
/// A number under which a device's kernel may report errors of this call, which are thrown with the
/// op, the present layer and `loc`; 0 for a row that has no error texts.
TD_API uint32_t take_ticket(const OpDef& op, SourceLocation loc);
/// The same for a call that is recorded and made again and again: good until drop_ticket().
TD_API uint32_t keep_ticket(const OpDef& op, SourceLocation loc);
TD_API void drop_ticket(uint32_t ticket);

}  // namespace tandem
