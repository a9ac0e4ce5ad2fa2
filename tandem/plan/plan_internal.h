// SPDX-License-Identifier: Apache-2.0
// The parts that a plan is put together from. Not installed.
#pragma once

#include <array>

#include "tandem/plan/plan.h"

namespace tandem::plan {

/// The request as that GPU runs it: with a precision, where none was asked for.
PlanRequest on(const PlanRequest& r, const Gpu& gpu);
/// A dry run for a device that has a kernel for every row.
Workload workload_for(const PlanRequest& r, int64_t per_gpu, bool compiled, bool training);
void check_request(const PlanRequest& r, const Catalog& catalog);
/// Does the request ask for matmuls in bf16 of a GPU that has no units for them?
bool lacks_bf16(const PlanRequest& r, const Gpu& gpu);
/// What to know of that GPU: no bf16, an efficiency that is assumed.
void add_notes_of_gpu(std::vector<std::string>& notes, const PlanRequest& asked, const Gpu& gpu);
/// Samples of each GPU and step where no batch was asked for.
inline constexpr int64_t kUsualBatch = 32;
/// Samples of one GPU and batch: those asked for over GPUs and accumulated batches, or the usual
/// ones; at least 1.
int64_t per_gpu_batch(const PlanRequest& r, int n);
/// It again, halved until it fits where no batch was asked for.
int64_t fitting_batch(const PlanRequest& r, const Gpu& gpu, int n);

/// Share of its board power that a GPU draws while it trains, and of the host beside it.
inline constexpr double kPowerShare = 0.8, kHostShare = 0.2;

/// Share of a link's rate that collectives reach, within a server and between servers.
inline constexpr double kLinkShare = 0.7, kNetworkShare = 0.9;

/// " as in PyTorch with composed attention recomputing (full)": what is not as usual, in words.
std::string unusual_of(const Plan& p);

/// One accelerator and its host fail about once in so long: 419 interruptions of 16384 GPUs in 54
/// days (Llama 3, section 3.3.4), so 50700 hours each.
inline constexpr double kMtbfSeconds = 50700.0 * 3600;

/// Share of the memory bandwidth that large pointwise kernels reach on GPUs.
inline constexpr double kBandwidthShare = 0.8;
/// Seconds of each kernel of a step.
std::vector<double> kernel_times(const Workload& w, const Gpu& gpu);
/// Which phases of a step count.
using Phases = std::array<bool, 8>;
/// The times of the kernels of some phases, as a sum of quotients: of the whole net, as `ways` GPUs
/// that share each layer compute it one after the other.
Quantity device_time(const Workload& w, const Gpu& gpu, const std::string& key,
                     const std::string& label, const Phases& wanted, int ways = 1);

Quantity gpus_of(int n);
/// GPUs, or groups of them that share a net, which have batches of their own.
inline int replicas(const PlanRequest& r, int n) { return std::max(1, n / r.parallel.parts()); }
Quantity replicas_of(const PlanRequest& r, int n);
/// GPUs that share a net, and what each of them has of it: `whole` itself where it is one.
Quantity parts_of(const PlanRequest& r);
Quantity shared_by_parts(const PlanRequest& r, const std::string& key, const std::string& label,
                         const std::string& unit, Quantity whole);
/// "key=value" pairs of an option's text; throws Value with the form.
std::vector<std::pair<std::string, std::string>> pairs(const std::string& text,
                                                       const std::string& option,
                                                       const std::vector<std::string>& known,
                                                       const std::string& form);
Quantity accumulated(const PlanRequest& r);
/// Tokens or samples to the end; none where no end was asked for.
std::optional<Quantity> units_of(const PlanRequest& r);
/// Checkpoints, what they and failures cost, and when it ends. Every plan and every row of a
/// ranking asks here.
struct Ending {
  Quantity save, between, interval;  ///< seconds: of a checkpoint, between failures and checkpoints
  Quantity lost;                     ///< share of the time
  std::optional<Quantity> work,
      time;  ///< seconds: computing alone, and to the end with what is lost
};
/// `units`: to the end, if there is one; `rate` as throughput() gives it.
Ending ending_of(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n, const Workload& w,
                 const Quantity* units, const Quantity& rate);
Quantity servers_of(const Gpu& gpu, int n);
Quantity per_hour(const Quantity& time);
/// The memory of that GPU that programs may have.
Quantity capacity_of(const Gpu& gpu);
Quantity price_hour(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n);
Quantity power_of(const Catalog& c, const Gpu& gpu, int n);
Quantity energy_of(const Quantity& power, const Quantity& time);
/// What a resume needs.
Quantity checkpoint_of(const Workload& w);
/// Rent and storage for `time`.
Quantity cost_of(const PlanRequest& r, const Catalog& c, const Gpu& gpu, int n, const Workload& w,
                 const Quantity& time);
/// Bytes of the data on disk; 0 where no data was named.
Quantity data_bytes(const PlanRequest& r);
/// It again, or nothing.
Quantity stored_data(const PlanRequest& r);
/// Samples a second for that rate, and the cores that decode them.
Quantity sample_rate(const PlanRequest& r, const Quantity& rate);
Quantity decoding_cores(const PlanRequest& r, const Quantity& rate);

/// What recompute, narrower numbers, 8-bit state and sharding would save.
void add_savings(Plan& p, const PlanRequest& r, const Workload& w);
/// Bytes, files and cores that keep the GPUs busy.
void add_data(Plan& p, const PlanRequest& r, const Catalog& c);
void add_energy_and_cost(Plan& p, const PlanRequest& r, const Catalog& c, const Workload& w,
                         const Quantity* time);
void add_server(Plan& p, const PlanRequest& r);

}  // namespace tandem::plan
