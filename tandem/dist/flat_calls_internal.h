// SPDX-License-Identifier: Apache-2.0
// FlatCalls: gathers and sums of flat arrays of which each rank has a part, for the eager steps of
// sharded parameters. The whole array lies where the net is (`device`), the parts where their
// optimizer works (`home`: the device, or the host). On devices calls are made by their library
// where every rank has one, else through the host; one rank makes none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/device_calls_internal.h"
#include "tandem/tensor/tensor.h"

namespace tandem::distributed {

/// A call that is under way: what it reads and writes stays until wait() or settle().
class FlatCall {
 public:
  FlatCall() = default;
  bool running() const { return to_.defined(); }
  /// The whole array of a gather, this rank's part of a sum. Throws the call's error. An empty
  /// FlatCall gives an undefined tensor.
  Tensor wait();
  /// After an error: nobody writes any more to memory that is let go.
  void settle() noexcept;

 private:
  friend class FlatCalls;
  Work work_;
  std::shared_ptr<DeviceRanks> ranks_;  ///< where the devices' library makes it
  Tensor from_, to_;                    ///< what it reads and writes
  Tensor target_;                       ///< where a gather that came through the host goes
  Device home_{};                       ///< of a sum's part
  double divisor_ = 1;                  ///< what is left to be divided by
};

class FlatCalls {
 public:
  /// All ranks make one: it is a call of all of them where `device` is not the host. `dtypes` are
  /// those of the arrays.
  FlatCalls(std::shared_ptr<Engine> group, Device device, Device home,
            const std::vector<DType>& dtypes);
  Device device() const { return device_; }
  Device home() const { return home_; }
  /// Do calls stay on the devices?
  bool by_device() const { return ranks_ != nullptr; }

  /// `own` [part] on `home` of each rank, stacked in `whole` [ranks * part] on `device`.
  FlatCall gather(const Tensor& own, const Tensor& whole, const std::string& label) const;
  /// The sum of `whole` [ranks * part] of each rank, divided; the result is this rank's [part] on
  /// `home`. The call keeps `whole` as long as it reads it. `ordered`: added up by the host's tree,
  /// whatever the devices have.
  FlatCall sum(const Tensor& whole, const std::string& label, bool ordered, double divisor) const;

 private:
  std::shared_ptr<Engine> group_;
  Device device_, home_;
  std::shared_ptr<DeviceRanks> ranks_;
};

/// Dense elements of the host, as engines take them.
Array flat_array(const Tensor& t);
/// Flat values that are not initialised, or zeros, on that device whatever the guard says.
Tensor empty_flat(int64_t elements, DType dtype, Device device);
Tensor zeros_flat(int64_t elements, DType dtype, Device device);
/// Every byte becomes 0.
void clear_flat(const Tensor& flat);
/// Copy the elements of `from`, dense, to `flat` from element `at` on, from any device to any.
void copy_into(const Tensor& flat, int64_t at, const Tensor& from);

}  // namespace tandem::distributed
