// SPDX-License-Identifier: Apache-2.0
// The measured machine beside what its parts should give.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tandem/plan/hardware/machine.h"

namespace tandem::plan {
namespace {

struct Chip {
  std::string vendor, flags;
  double mhz = 0;  ///< the fastest core's now: a base clock in most virtual machines
};
Chip this_chip() {
  Chip c;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string value = line.substr(std::min(colon + 2, line.size()));
    if (line.rfind("vendor_id", 0) == 0) c.vendor = value;
    if (line.rfind("flags", 0) == 0) c.flags = " " + value + " ";
    if (line.rfind("cpu MHz", 0) == 0) c.mhz = std::max(c.mhz, std::strtod(value.c_str(), nullptr));
  }
  return c;
}

// f32 operations of one core in a cycle: two fused multiply-adds of its vector width, which AMD's
// AVX-512 and older chips do at half of it.
double per_cycle(const Chip& c) {
  const auto has = [&](const char* flag) {
    return c.flags.find(" " + std::string(flag) + " ") != std::string::npos;
  };
  if (has("avx512f")) return c.vendor == "GenuineIntel" ? 64 : 32;
  if (has("avx2") && has("fma")) return 32;
  if (has("avx")) return 16;
  return 8;
}

}  // namespace

std::vector<MachineLine> evaluate_machine(const MachineProfile& m, const Catalog& catalog) {
  std::vector<MachineLine> all;
  const auto line = [&](std::string what, std::string measured, std::string expected, bool ok,
                        std::string advice) {
    all.push_back({std::move(what), std::move(measured), std::move(expected), ok,
                   ok ? std::string() : std::move(advice)});
  };
  const Chip chip = this_chip();
  const Cpu* known = nullptr;
  for (const Cpu& c : catalog.cpus())
    if (m.cpu.find(c.name) != m.cpu.npos) known = &c;
  const double ghz = known ? known->ghz : chip.mhz / 1000;
  const double cycle = known ? known->flops_per_cycle : per_cycle(chip);
  if (ghz > 0) {
    const double peak = m.threads * ghz * 1e9 * cycle;
    line("matmuls in f32", show(m.f32_flops, "FLOP/s"),
         fmt::format("{:.0f} % of {}: {} threads x {:.2f} GHz x {:.0f} a cycle{}",
                     100 * m.f32_flops / peak, show(peak, "FLOP/s"), m.threads, ghz, cycle,
                     known ? ", " + known->source : ", by its instruction sets"),
         m.f32_flops >= 0.6 * peak,
         "Something else computes, the chip is too hot, or fewer cores are there than threads.");
  }
  // DDR4 and DDR5 give one core about 10 to 20 GB/s; what is far below is shared or starved.
  const double wanted =
      known ? std::min(0.5 * known->bandwidth, 5e9 * m.threads) : 5e9 * std::min(m.threads, 8);
  line("memory bandwidth", show(m.bandwidth, "B/s"),
       known
           ? fmt::format("{:.0f} % of {} of all channels, {}", 100 * m.bandwidth / known->bandwidth,
                         show(known->bandwidth, "B/s"), known->source)
           : fmt::format("{} and more for {} threads", show(wanted, "B/s"), m.threads),
       m.bandwidth >= wanted, "Others use the memory, or not all of its channels are filled.");
  line("caches", show(m.cache_bandwidth, "B/s"), "three times the memory's and more",
       m.cache_bandwidth >= 3 * m.bandwidth, "The caches are shared with others.");
  line("one small op", show(m.launch_seconds, "s"), "under 1 us", m.launch_seconds < 1e-6,
       "A debug build, or a profiler is on.");
  std::string like = "slower than any that is known";
  bool fast = false;
  for (const Disk& d : catalog.disks())
    if (d.name != "network share" && m.disk_rate >= 0.6 * d.read_rate) {
      like = "as a " + d.name + " (" + show(d.read_rate, "B/s") + ")";
      fast = d.read_rate > 0.5e9;
      break;
    }
  line("disk", show(m.disk_rate, "B/s"), like, fast,
       "Large data sets need a faster disk, or RAM that holds them.");
  // The CRC and inflate of a PNG of half a megabyte.
  line("decoding", show(m.decode_seconds, "s") + " an image and core", "under 10 ms",
       m.decode_seconds < 10e-3, "Slow cores: plan more loader threads.");
  line("loop-back", show(m.link_rate, "B/s"), "1 GB/s and more", m.link_rate >= 1e9,
       "A firewall or a slow kernel is between programs of this machine.");
  return all;
}

}  // namespace tandem::plan
