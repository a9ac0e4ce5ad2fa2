// SPDX-License-Identifier: Apache-2.0
// What the data asks of a server: bytes, files a second, the cores that decode them.
#include <fmt/format.h>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

Quantity data_bytes(const PlanRequest& r) {
  if (!r.data) return given("data.bytes", "data", 0, "B", "no --data was named");
  if (r.data->bytes > 0)
    return given("data.bytes", "data", r.data->bytes, "B", r.data->name + ": " + r.data->source);
  return product(
      "data.bytes", "data", "B", "",
      {given("data.samples", "samples of " + r.data->name, r.data->samples, "", r.data->source),
       given("data.sample.assumed", "bytes of one", r.job.sample_bytes, "B",
             r.job.sample_from.empty() ? "not known" : r.job.sample_from)});
}

Quantity stored_data(const PlanRequest& r) { return r.data ? again(data_bytes(r)) : data_bytes(r); }

Quantity sample_rate(const PlanRequest& r, const Quantity& rate) {
  return quotient(
      "data.samples_rate", "samples per second", "1/s", "", again(rate),
      given("units.sample", r.job.unit + " per sample", r.job.units_per_sample, "", "the job's"));
}

Quantity decoding_cores(const PlanRequest& r, const Quantity& rate) {
  return product("data.cores", "CPU cores for decoding", "", "",
                 {sample_rate(r, rate),
                  given("data.decode", "seconds per sample", r.job.decode_seconds, "s",
                        r.job.decode_seconds > 0 ? r.job.sample_from : "nothing is decoded"),
                  given("data.headroom", "headroom", 1.25, "", "so that the GPU never waits")});
}

void add_data(Plan& p, const PlanRequest& r, const Catalog& c) {
  const Job& job = r.job;
  const Quantity rate = *p.find("rate");
  if (r.data) p.figures.push_back(data_bytes(r));
  if (job.sample_bytes <= 0) return;
  Quantity sample =
      r.data && r.data->bytes > 0
          ? quotient("data.sample", "bytes per sample", "B", "", stored_data(r),
                     given("data.samples", "samples of " + r.data->name, r.data->samples, "",
                           r.data->source))
          : given("data.sample", "bytes per sample", job.sample_bytes, "B", job.sample_from);
  p.figures.push_back(
      product("data.rate", "data rate", "B/s", "", {sample_rate(r, rate), std::move(sample)}));
  const Quantity need = p.figures.back();
  if (job.decode_seconds > 0) p.figures.push_back(decoding_cores(r, rate));
  const Quantity network = product(
      "data.network", "or a network of", "bit/s", "",
      {again(need), given("data.network.bits", "bits", 8, "", "of a byte"),
       given("data.network.headroom", "headroom", 1.2, "", "headers, and others on the network")});
  p.figures.push_back(network);
  // Samples that are files of their own are read from anywhere on the disk.
  const bool files = (r.data ? r.data->files : std::nullopt).value_or(job.files);
  if (files) {
    Quantity reads = sample_rate(r, rate);
    reads.key = "data.reads";
    reads.label = "files per second";
    reads.unit = "files/s";
    p.figures.push_back(std::move(reads));
  }
  // The slowest disk that keeps up, with half as much again in reserve.
  const auto enough = [&](bool at_random) {
    for (auto at = c.disks().rbegin(); at != c.disks().rend(); ++at)
      if (at->name != "network share" && at->read_rate >= 1.5 * need.value &&
          (!at_random || at->reads >= 1.5 * p.find("data.reads")->value))
        return at->name;
    return std::string("no disk that is known");
  };
  const std::string disk = enough(files), in_order = enough(false);
  std::string text =
      fmt::format("Data: {} from disk keep the GPUs busy; {} is enough", show(need), disk);
  if (files)
    text +=
        fmt::format(" for {} that lie anywhere on it{}", show(*p.find("data.reads")),
                    disk == in_order ? "" : ", " + in_order + " would do for shards read in order");
  p.notes.push_back(text + fmt::format("; a network of {} too.", show(network)));
}

}  // namespace tandem::plan
