// SPDX-License-Identifier: Apache-2.0
// The page of scaling: what was measured on one machine, jobs of 8 to 16,384 GPUs simulated, and
// the simulation against published runs.
#pragma once

#include <string>
#include <vector>

#include "tandem/plan/simulate.h"

namespace tandem::plan {

/// The same job published on several numbers of GPUs: what each GPU does of what it does on the
/// fewest.
struct PublishedScaling {
  std::string name;
  std::vector<int> gpus;
  std::vector<double> published, simulated;    ///< shares; the first is 1
  std::vector<double> rates, simulated_rates;  ///< units a second of a GPU
};
/// Of the rows of a file (tests/plan/mosaic_runs.csv, scaling_runs.csv) those that differ in
/// nothing but GPUs. Throws Io, Format.
TD_API std::vector<PublishedScaling> published_scaling(const std::string& rows, const Catalog& c);

/// The rows of tests/plan/horovod_runs.csv: data parallel training in f32, published as shares of
/// one GPU's rate, or as images of all GPUs. What is not published is 0. Throws Io, Format.
struct PublishedShare {
  std::string model;
  int gpus = 1;
  double published = 0, simulated = 0;  ///< share of one GPU's rate
  double rate = 0, simulated_rate = 0;  ///< images a second of all GPUs
};
TD_API std::vector<PublishedShare> published_shares(const std::string& rows, const Catalog& c);

/// As Markdown. `measured`: what bench/dist_scaling wrote, "": nothing; `rows`, `shares`: such
/// files.
TD_API std::string scaling_page(const Catalog& c, const std::string& measured,
                                const std::vector<std::string>& rows, const std::string& shares);

}  // namespace tandem::plan
