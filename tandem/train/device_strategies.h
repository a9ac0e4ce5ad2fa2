// SPDX-License-Identifier: Apache-2.0
// Keras's way to train a model on several devices: a strategy, in whose scope it is compiled.
// Each device has a rank, a process of its own (docs/distributed.md).
#pragma once

#include <string>

#include "tandem/tensor/device.h"
#include "tandem/train/trainer_options.h"

namespace tandem::train {

struct DeviceStrategyOptions {
  std::string device = "auto";  ///< what each rank gets one of: cuda, opencl, cpu
  /// Of this machine; -1: all that there are of that kind (of the CPU: one).
  int devices = -1;
};

/// What the strategies have in common. A Model that is compiled in the scope is moved to this
/// rank's device and trains there: every rank has its part of each batch, and all make the same
/// update. `batch_size` stays the size of the whole batch.
class TD_API DeviceStrategy {
 public:
  DeviceStrategy(const DeviceStrategy&) = delete;
  DeviceStrategy& operator=(const DeviceStrategy&) = delete;

  /// Ranks of the whole job.
  int num_replicas_in_sync() const { return replicas_; }
  /// Is this the rank that writes files and prints?
  bool is_chief() const { return rank_ == 0; }
  /// This rank's.
  Device device() const { return device_; }

  /// `const auto scope = strategy.scope();`: in effect while it lives, on this thread.
  class TD_API Scope {
   public:
    explicit Scope(const DeviceStrategy& s);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const DeviceStrategy* before_;
  };
  Scope scope() const { return Scope(*this); }
  /// The one of the innermost scope; null outside of them.
  static const DeviceStrategy* current();

 protected:
  DeviceStrategy(const DeviceStrategyOptions& options, bool several_machines);
  ~DeviceStrategy() = default;

 private:
  int rank_ = 0, replicas_ = 1;
  Device device_;
};

/// `train::MirroredStrategy strategy({.device = "cuda"});` right after init(), as the first thing
/// of main(): the devices of this machine. In a process that no launcher has started, and with
/// several devices, the constructor starts the program's own command line again once for each of
/// them, waits for all of them, and ends this process with their exit code
/// (distributed::launch_self()); in each rank it returns. Throws Value for a device that is not
/// there, and where a job has ranks on other machines.
class TD_API MirroredStrategy : public DeviceStrategy {
 public:
  explicit MirroredStrategy(const DeviceStrategyOptions& options = {})
      : DeviceStrategy(options, false) {}
};

/// The same over several machines: TF_CONFIG (or torchrun's, Slurm's, MPI's variables) says which
/// there are, and each of them starts the program once. Without such variables it is a
/// MirroredStrategy. Unless all machines see one cache folder, TANDEM_TOKEN must be the same on
/// all.
class TD_API MultiWorkerMirroredStrategy : public DeviceStrategy {
 public:
  explicit MultiWorkerMirroredStrategy(const DeviceStrategyOptions& options = {})
      : DeviceStrategy(options, true) {}
};

}  // namespace tandem::train
