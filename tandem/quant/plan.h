// SPDX-License-Identifier: Apache-2.0
// Where a network has codes: which of its values are rounded, and which operands read them so. A
// value is rounded where a quantised layer reads it, and from there up through what passes codes
// on, to sums whose operands are rounded as well.
#pragma once

#include <map>
#include <set>

#include "tandem/quant/network.h"

namespace tandem::quant {

/// A value that is rounded. Values that pass unchanged have the step of where they came from.
struct Site {
  ValueId value;
  int source = -1;   ///< the site whose range counts
  std::string name;  ///< for people
};

class TD_API Plan {
 public:
  /// `quantised[i]`: layer i is; `outputs`: the network's outputs are rounded, too; `dynamic`: the
  /// layers round what they read by themselves.
  Plan(const Network& net, std::vector<char> quantised, bool outputs, bool dynamic = false);

  const std::vector<Site>& sites() const { return sites_; }
  bool is_quantised(size_t layer) const { return quantised_[layer]; }
  /// The site that an operand reads; -1: it reads the value as it is.
  int site_at(const Node& n, size_t operand) const;
  /// The site of an output of the network; -1: none.
  int output_site(size_t output) const { return outputs_[output]; }

 private:
  void mark(const Network& net, const Node& n);
  void mark_operands(const Network& net, const Node& n);
  int add(const Network& net, ValueId v);

  std::vector<char> quantised_;
  bool dynamic_;
  std::vector<Site> sites_;
  std::map<ValueId, int> at_;
  std::set<ValueId> region_;  ///< what a rounded value is computed from without rounding
  std::map<std::pair<uint32_t, size_t>, int> reads_;
  std::vector<int> outputs_;
};

}  // namespace tandem::quant
