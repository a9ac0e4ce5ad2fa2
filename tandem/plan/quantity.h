// SPDX-License-Identifier: Apache-2.0
// Quantity: a number that knows where it comes from. A plan is a tree of them: every figure is
// given (with its source), repeats another one, or follows from its parts by one operation, so
// `--why` can show each and check() can work it out again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::plan {

struct Quantity {
  enum class How : uint8_t {
    given,
    again,  ///< the figure with the same key elsewhere in the plan
    sum,
    difference,  ///< the first part less the others
    product,
    quotient,
    most,
    least,
    whole,  ///< its only part, rounded up to a whole number
    root    ///< the square root of its only part
  };
  std::string key;    ///< "memory.weights"; one value for each key of a plan
  std::string label;  ///< "weights"
  double value = 0;
  std::string
      unit;  ///< "B", "s", "W", "USD", "kWh", "1/s", "B/s", "bit/s", "FLOP", "FLOP/s", "h", ""
  How how = How::given;
  std::string why;  ///< a sentence: what it means and where it comes from
  std::vector<Quantity> parts;
  std::optional<double> low, high;  ///< a range, where there is one
};

/// A number from outside: measured, counted, published or assumed; `why` says which.
TD_API Quantity given(std::string key, std::string label, double value, std::string unit,
                      std::string why);
/// `q` without its parts, for use in another figure.
TD_API Quantity again(const Quantity& q);
/// Results of parts.
TD_API Quantity sum(std::string key, std::string label, std::string unit, std::string why,
                    std::vector<Quantity> parts);
TD_API Quantity difference(std::string key, std::string label, std::string unit, std::string why,
                           std::vector<Quantity> parts);
TD_API Quantity product(std::string key, std::string label, std::string unit, std::string why,
                        std::vector<Quantity> parts);
TD_API Quantity quotient(std::string key, std::string label, std::string unit, std::string why,
                         Quantity a, Quantity b);
TD_API Quantity most(std::string key, std::string label, std::string unit, std::string why,
                     std::vector<Quantity> parts);
TD_API Quantity least(std::string key, std::string label, std::string unit, std::string why,
                      std::vector<Quantity> parts);
TD_API Quantity whole(std::string key, std::string label, std::string unit, std::string why,
                      Quantity part);
TD_API Quantity root(std::string key, std::string label, std::string unit, std::string why,
                     Quantity part);
/// `part` rounded up to a multiple of `step`; the parts' keys begin with `key`.
TD_API Quantity rounded_up(std::string key, std::string label, std::string unit, std::string why,
                           Quantity part, double step);
/// The tree with "prefix." before every key: the same formulas under other conditions.
TD_API Quantity prefixed(Quantity q, const std::string& prefix);

/// Throws Internal where a value is not what its parts give (beyond rounding), is not a finite
/// number, or lies outside its range.
TD_API void check(const Quantity& q);
/// The quantity with this key in the tree, or nullptr; one with parts rather than one that only
/// repeats it.
TD_API const Quantity* find(const Quantity& root, const std::string& key);
/// All keys of the tree, depth first.
TD_API std::vector<std::string> keys(const Quantity& root);
/// "12.3 GB", "4.1 ms", "$3.20", "14,890 images/s", "411 years".
TD_API std::string show(double value, const std::string& unit);
TD_API std::string show(const Quantity& q);
/// The share of `part` in a sum `q`: "12.3 %".
TD_API std::string show_share(const Quantity& part, const Quantity& q);
/// "sum of", "product of", ...; "" for what is given, "see" for what is repeated.
TD_API const char* words(Quantity::How how);
/// The tree as indented text: value, how it is made, and why; `depth` levels below the root.
TD_API std::string explain(const Quantity& q, int depth = 8);
TD_API io::Json to_json(const Quantity& q);

}  // namespace tandem::plan
