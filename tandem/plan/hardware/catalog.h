// SPDX-License-Identifier: Apache-2.0
// Hardware and prices as dated data: data/hardware.json and data/prices.json, which are part of the
// library and may be replaced by files. Everything is checked when it is read, and every row says
// where it comes from: a public document or page with its year, or "assumed: " and why.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"

namespace tandem::plan {

/// Bytes of a GPU's memory that its driver keeps: cards report 0.25 to 0.7 GiB more than programs
/// get. A program's own context comes on top of it.
inline constexpr double kDriverKeeps = 0x1p29;

struct TD_API Gpu {
  std::string name;
  std::vector<std::string> aliases;
  double memory = 0;  ///< bytes, as the card reports them
  std::string memory_from;
  double bandwidth = 0;  ///< bytes per second
  std::map<std::string, double>
      flops;  ///< per second by "f32", "tf32", "f16", "bf16", "fp8", "int8"
  std::string link;
  double link_rate = 0;   ///< bytes per second and direction to the other GPUs
  double network = 25e9;  ///< bytes per second of its network card, to other servers
  std::string network_from = "assumed: 200 Gbit/s for each GPU, as NVIDIA's DGX A100 has it (2020)";
  double watts = 0;
  int per_server = 8;    ///< most in one server
  int processors = 100;  ///< multiprocessors, or compute units
  /// The one constant by which peak arithmetic is multiplied for full tiles of matmuls, and where
  /// it comes from.
  double efficiency = 0.65;
  std::string efficiency_from, source;
  /// Attention in one kernel, forward and backward, as a share of that rate.
  std::array<double, 2> attention = {0.67, 0.34};
  std::string attention_from =
      "assumed: as on the A100, by rows of MosaicML's table with long sequences (tests/plan/"
      "mosaic_runs.csv)";
  /// Did no published runs set its efficiency?
  bool assumed_efficiency() const { return efficiency_from.starts_with("assumed: "); }
  /// What programs may have of it: its memory less what the driver keeps.
  double usable() const;
  /// Does it compute in bf16? Those before Ampere do not.
  bool has_bf16() const { return flops.count("bf16") > 0; }
  /// Peak for values of `kind`, the next wider kind where there is none.
  double peak(const std::string& kind) const;
};
struct Cpu {
  std::string name;
  std::vector<std::string> aliases;
  int cores = 0;
  double ghz = 0, flops_per_cycle = 0, bandwidth = 0, watts = 0;
  std::string source;
  double peak() const { return cores * ghz * 1e9 * flops_per_cycle; }
};
struct Disk {
  std::string name;
  double read_rate = 0;  ///< bytes per second of long reads
  double reads = 0;      ///< files per second that lie anywhere
  std::string source;
};
struct GpuPrice {
  double low = 0, typical = 0, high = 0;  ///< USD per GPU and hour
  double buy = 0, host = 0;               ///< USD per GPU: the card, and its share of a server
  std::string source, buy_source;         ///< of the rent, and of buying
};
struct Term {
  std::string name;
  double discount = 0;
  std::string source;
};
/// Machines that may be taken away.
struct Spot {
  double discount = 0, preemptions_per_day = 0, restart_seconds = 0;
  std::string source;
};
struct Rate {
  double value = 0;
  std::string source;
};
struct Prices {
  std::string file, date;
  std::map<std::string, GpuPrice> gpus;  ///< by Gpu::name
  std::vector<Term> terms;
  Spot spot;
  Rate surcharge;      ///< network, addresses and the like, as a share of the rent
  Rate storage_month;  ///< USD per GB and month, fast
  Rate cold_month;     ///< likewise, slow
  Rate electricity;    ///< USD per kWh
  Rate pue;            ///< power of the building per power of the servers
};

/// All that is known. Throws Format for data that breaks the schema, naming file, row, key, what
/// came and what is wanted; Value for a name that is not there, with the nearest one.
class TD_API Catalog {
 public:
  /// What the library was built with.
  static Catalog built_in();
  /// Files in place of the built-in data; an empty path keeps it. Built-in prices of GPUs that a
  /// file of hardware leaves out are left out too.
  static Catalog load(const std::string& hardware, const std::string& prices);

  /// By name or alias; case, blanks, hyphens and the maker's name do not count.
  const Gpu& gpu(const std::string& name) const;
  const Cpu& cpu(const std::string& name) const;
  bool has_price(const Gpu& gpu) const { return prices_.gpus.count(gpu.name) > 0; }
  const GpuPrice& price(const Gpu& gpu) const;
  const std::vector<Gpu>& gpus() const { return gpus_; }
  const std::vector<Cpu>& cpus() const { return cpus_; }
  const std::vector<Disk>& disks() const { return disks_; }
  const Prices& prices() const { return prices_; }
  const std::string& date() const { return date_; }

 private:
  void read_hardware(const io::Json& j, const std::string& what);
  void read_prices(const io::Json& j, const std::string& what, bool of_unknown_gpus);
  std::vector<Gpu> gpus_;
  std::vector<Cpu> cpus_;
  std::vector<Disk> disks_;
  Prices prices_;
  std::string date_;
};

/// What `tandem bench --machine` measured of the machine that it ran on.
struct MachineProfile {
  std::string cpu, date;
  int threads = 0;
  /// A kernel that was measured in a step.
  struct Point {
    std::string kind;  ///< see point_kind(): "compiled f32 conv"
    double flops = 0, bytes = 0;
    double sizes[3] = {};  ///< elements of its first two inputs and of its result
    double seconds = 0;
  };
  std::vector<Point> points;
  double f32_flops = 0;  ///< best matmul
  double bf16_flops = 0;
  double bandwidth = 0;              ///< bytes per second of a large copy, read and written
  double cache_bandwidth = 0;        ///< of one that stays in the caches
  double cache_bytes = 0;            ///< up to this many
  double launch_seconds = 0;         ///< one small op in eager
  double step_seconds = 0;           ///< one small kernel of a compiled function
  double eager_call_seconds = 0;     ///< around a step's kernels, per kernel
  double compiled_call_seconds = 0;  ///< likewise
  double disk_rate = 0;              ///< bytes per second, read
  double decode_seconds = 0;         ///< one core, one PNG photo of 500 x 375
  double link_rate = 0;              ///< bytes per second of a loop-back connection
  double memory = 0;                 ///< bytes of RAM
};
TD_API io::Json to_json(const MachineProfile& p);
/// Throws Format.
TD_API MachineProfile machine_profile(const io::Json& j, const std::string& what);
/// Where `bench --machine` leaves it: machine.json in the user's cache
/// (base/files/private_folder.h). "" where the cache may not be used.
TD_API std::string machine_profile_path();
/// What was measured; `file` empty: the one there. Throws Io, with the cache's problem too, and
/// Format.
TD_API MachineProfile read_machine_profile(const std::string& file = "");
/// Keeps it in `file`, or there; gives the path. Throws Io.
TD_API std::string write_machine_profile(const MachineProfile& profile,
                                         const std::string& file = "");

}  // namespace tandem::plan
