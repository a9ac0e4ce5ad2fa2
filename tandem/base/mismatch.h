// SPDX-License-Identifier: Apache-2.0
// What does not fit between the names that are wanted and those that came, as one text: all of it
// at once, each missing name beside the one that is probably meant.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/export.h"

namespace tandem {

struct TD_API Mismatch {
  std::vector<std::string> missing, unexpected;
  /// Names that are there with other values than wanted, each as "fc.bias is [3] here, [9] there".
  std::vector<std::string> differing = {};

  bool empty() const { return missing.empty() && unexpected.empty() && differing.empty(); }
  /// The unexpected name that `name` probably stands for: the same after a prefix, else the
  /// nearest spelling; "" where there is none.
  std::string likely(const std::string& name) const;
  /// "2 missing (fc.bias: there is fc.bais; fc.weight), 1 unexpected (fc.bais)"; of each kind the
  /// first eight.
  std::string text() const;
};

}  // namespace tandem
