// SPDX-License-Identifier: Apache-2.0
// Compares saved states.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tandem/ops/ops.h"
#include "tandem/tensor/state_dict.h"

namespace tandem {

/// The same names, dtypes and values.
inline void expect_same(const StateDict& got, const StateDict& want, const std::string& what = "") {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << what << ": " << name;
    EXPECT_EQ(got.at(name).dtype(), value.dtype()) << what << ": " << name;
    EXPECT_TRUE(equal(got.at(name), value)) << what << ": " << name;
  }
}

}  // namespace tandem
