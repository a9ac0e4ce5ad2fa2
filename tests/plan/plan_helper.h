// SPDX-License-Identifier: Apache-2.0
// For the tests of plans: errors with their texts, requests, and the numbers of a text held against
// the figures of a plan.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/plan/plan.h"

namespace tandem::plan {

struct Thrown {
  ErrorKind kind = ErrorKind::Internal;
  std::string text;
};
template <class F>
Thrown thrown_by(F f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {ErrorKind::Internal, "nothing was thrown"};
}
/// The statements throw an error of that kind whose text holds `wanted`.
#define EXPECT_ERROR(kind_, wanted, ...)                                              \
  do {                                                                                \
    const ::tandem::plan::Thrown t = ::tandem::plan::thrown_by([&] { __VA_ARGS__; }); \
    EXPECT_EQ(t.kind, ::tandem::ErrorKind::kind_) << t.text;                          \
    EXPECT_NE(t.text.find(wanted), std::string::npos) << t.text;                      \
  } while (false)

/// The value below which the share `q` of `v` lies.
double quantile(std::vector<double> v, double q);
/// A batch of 32 of that model on that GPU.
PlanRequest request(const std::string& model, const std::string& gpu);

/// What a plan's JSON claims, recomputed from the parts that it names. Returns what does not
/// add up: nothing, for a good plan.
std::vector<std::string> broken_sums(const io::Json& plan);
/// The numbers in a plan's text that are not a figure of its JSON, each with what stands around it.
/// `words`: names that hold digits and are not numbers.
std::vector<std::string> unexplained_numbers(const std::string& text, const io::Json& plan,
                                             std::vector<std::string> words);
/// The keys that a text shows in brackets.
std::vector<std::string> shown_keys(const std::string& text);

}  // namespace tandem::plan
