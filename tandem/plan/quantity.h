// SPDX-License-Identifier: Apache-2.0
// Quantity: a number that knows where it comes from. A plan is a tree of them: every figure is
// given (with its source), or a sum, product, quotient, maximum or minimum of others, so `--why`
// can show each and check() can work it out again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::plan {

struct Quantity {
  enum class How : uint8_t { given, sum, product, quotient, most, least };
  std::string key;    ///< "memory.weights"; unique in a plan
  std::string label;  ///< "weights"
  double value = 0;
  std::string unit;  ///< "B", "s", "W", "USD", "kWh", "1/s", "B/s", "FLOP", "FLOP/s", "h", ""
  How how = How::given;
  std::string why;  ///< a sentence: what it means and where it comes from
  std::vector<Quantity> parts;
  std::optional<double> low, high;  ///< a range, where there is one
};

/// A number from outside: measured, counted, published or assumed; `why` says which.
TD_API Quantity given(std::string key, std::string label, double value, std::string unit,
                      std::string why);
/// Results of parts; a quotient takes two.
TD_API Quantity sum(std::string key, std::string label, std::string unit, std::string why,
                    std::vector<Quantity> parts);
TD_API Quantity product(std::string key, std::string label, std::string unit, std::string why,
                        std::vector<Quantity> parts);
TD_API Quantity quotient(std::string key, std::string label, std::string unit, std::string why,
                         Quantity a, Quantity b);
TD_API Quantity most(std::string key, std::string label, std::string unit, std::string why,
                     std::vector<Quantity> parts);
TD_API Quantity least(std::string key, std::string label, std::string unit, std::string why,
                      std::vector<Quantity> parts);

/// Throws Internal where a value is not what its parts give (beyond rounding), is no finite number,
/// or lies outside its range.
TD_API void check(const Quantity& q);
/// The quantity with this key in the tree, or nullptr.
TD_API const Quantity* find(const Quantity& root, const std::string& key);
/// All keys of the tree, depth first.
TD_API std::vector<std::string> keys(const Quantity& root);
/// "12.3 GB", "4.1 ms", "$3.20".
TD_API std::string show(double value, const std::string& unit);
TD_API std::string show(const Quantity& q);
/// The tree as indented text: value, how it is made, and why; `depth` levels below the root.
TD_API std::string explain(const Quantity& q, int depth = 8);
TD_API io::Json to_json(const Quantity& q);

}  // namespace tandem::plan
