// SPDX-License-Identifier: Apache-2.0
// Search over settings: grid, random and TPE samplers over named choices and ranges, asynchronous
// successive halving to stop trials early, and a journal from which a search is resumed. Nothing
// here knows what a trial is.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/philox.h"
#include "tandem/io/json.h"
#include "tandem/runs/append_file.h"

namespace tandem::train {

/// One thing that is searched over.
struct SearchRange {
  std::string name;          ///< "optim.lr"
  double low = 0, high = 0;  ///< both ends belong to it
  bool log = false, whole = false;
  int64_t steps = 5;                 ///< of the grid, for ranges
  std::vector<std::string> choices;  ///< in place of low and high
  /// "log 1e-4..1e-1", "0.1..0.9", "int 16..256", "log int 16..256", or choices. Throws Value.
  static TD_API SearchRange parse(const std::string& name, const std::string& text);
  /// The value at a place 0..1 as text.
  TD_API std::string text_at(double place) const;
};

struct Trial {
  int64_t number = 0;          ///< from 1, in the order of ask()
  std::vector<double> places;  ///< 0..1 in each range; what samplers think in
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<double> reports;  ///< the watched value after epochs 1, 2, ...
  std::optional<double> result;
  std::string state = "running";  ///< done, stopped, failed
  std::string note;
};

enum class Sampler : uint8_t { grid, random, tpe };

struct SearchOptions {
  Sampler sampler = Sampler::tpe;
  uint64_t seed = 0;
  bool minimise = true;
  int64_t startup = 10;     ///< TPE: trials at random first
  int64_t candidates = 24;  ///< TPE: drawn from the good ones' density, the best ratio wins
  /// ASHA (Li et al. 2020): at epochs grace, grace * eta, ... only the best 1 / eta of the trials
  /// so far continues. 0: every trial runs to its end.
  int64_t grace = 0, eta = 3;
};

/// A search: ask() for a trial, report() on it, tell() its result. The same seed and answers give
/// the same trials.
class TD_API Search {
 public:
  Search(std::vector<SearchRange> ranges, SearchOptions options);
  /// The next trial; nothing when the grid is used up.
  std::optional<Trial> ask();
  /// The watched value after `epoch` (from 1). True: stop it here.
  bool report(Trial& trial, int64_t epoch, double value) const;
  void tell(Trial trial);
  const std::vector<Trial>& trials() const { return trials_; }
  const std::vector<SearchRange>& ranges() const { return ranges_; }
  /// With the best result; null before the first.
  const Trial* best() const;
  int64_t grid_size() const;

 private:
  double uniform(int64_t trial, uint64_t draw) const;
  std::vector<double> random_places(int64_t number) const;
  std::vector<double> tpe_places(int64_t number) const;
  std::vector<SearchRange> ranges_;
  SearchOptions o_;
  std::vector<Trial> trials_;
  int64_t asked_ = 0;
};

TD_API io::Json to_json(const Trial& trial);
/// Throws Format.
TD_API Trial trial_of(const io::Json& json);
/// The finished trials of a journal (a JSON line each) told to `search`, which must have the ranges
/// that they were made of; what was cut off is left out. Gives their number. Throws Value for a
/// journal of another search.
TD_API int64_t read_journal(const FilePath& path, Search& search);

}  // namespace tandem::train
