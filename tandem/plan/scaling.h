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

/// As Markdown. `measured`: what bench/dist_scaling wrote, "": nothing; `rows`: such files.
TD_API std::string scaling_page(const Catalog& c, const std::string& measured,
                                const std::vector<std::string>& rows);

}  // namespace tandem::plan
