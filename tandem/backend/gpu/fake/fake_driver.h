// SPDX-License-Identifier: Apache-2.0
// The fake driver: a device of this process's memory and one thread, on which every line of the
// backend can be run and checked without a GPU. Kernels are compiled for the host and run thread by
// thread (grid_internal.h), streams run in an order that changes with the seed and with delays,
// every allocation lies between guard bytes and starts as NaN, every operation is checked for
// missing waits (happens_before_internal.h), and errors come when asked for.
#pragma once

#include <memory>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

struct FakeOptions {
  int devices = 1;
  int64_t bytes = int64_t{1} << 30;  ///< memory of each device
  uint64_t seed = 1;                 ///< of all that is random
  bool delays = true;                ///< streams rest now and then while nobody waits
  bool checks_waits = true;          ///< missing_wait for operations without order
  bool runs_kernels = true;          ///< false: launches do nothing, for measuring the host's cost
};

enum class Operation : uint8_t {
  allocate,
  allocate_host,
  create,  ///< a stream or an event
  copy,    ///< in any direction, and fill
  launch,
  build,
  record,  ///< an event; and the wait for one in a stream
  capture,
  replay,
  synchronize,
};

/// What a fake device can do besides.
class TD_API FakeContext : public Context {
 public:
  /// The call number `calls` from now (0: the next one) of this kind gives an error, once.
  /// With Code::lost all later calls do.
  virtual void fail_after(Operation operation, int64_t calls, Code code) = 0;
  /// What has been created, opened or allocated and not been given back.
  virtual int64_t live_objects() const = 0;
  /// What matmul_library() and conv_library() give from here on; nullptr: none. They live on.
  virtual void offer(MatmulLibrary* matmuls, ConvLibrary* convs) = 0;
  /// The same of ranks_library().
  virtual void offer(RanksLibrary* ranks) = 0;
};

TD_API std::unique_ptr<Driver> make_fake_driver(const FakeOptions& options);
/// Of devices of fake_driver() that are opened from here on; their number stays.
TD_API void set_fake_options(const FakeOptions& options);
TD_API std::unique_ptr<FakeContext> open_fake(const FakeOptions& options, int device = 0);

}  // namespace tandem::gpu
