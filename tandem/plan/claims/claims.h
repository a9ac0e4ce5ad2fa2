// SPDX-License-Identifier: Apache-2.0
// Statements about training, evaluated by arithmetic: what peak hardware and its memory allow, what
// a plan expects, what power times hours costs. Those that go around as a page: published.cpp.
#pragma once

#include "tandem/plan/plan.h"

namespace tandem::plan {

enum class Verdict : uint8_t { possible, unlikely, impossible, unclear };
TD_API const char* to_string(Verdict v);

struct Evaluated {
  std::string statement;
  Verdict verdict = Verdict::unclear;
  std::vector<Quantity> arithmetic;  ///< each adds up
  std::string why;
};

/// What a statement says of training: how long, for how much, with what energy, or how fast.
struct Claim {
  enum class Of : uint8_t { time, cost, energy, rate };
  Of of = Of::time;
  double value = 0;  ///< seconds, USD, kWh, or units per second
  /// Whether the statement names the GPUs of the request. Where they are assumed, the verdict is
  /// unclear.
  bool hardware_stated = true;
};
/// "MODEL trains through DATA, EPOCHS times, on N GPUs in SECONDS" (or for USD, with kWh, at a
/// rate): impossible where not even the weights in 16 bits fit or the rate is above what arithmetic
/// allows, unlikely where it does not fit as it is asked or is above 1.3 times the plan. Of data
/// without epochs it is unclear, and `why` says above how many epochs it would be impossible.
TD_API Evaluated check_claim(const PlanRequest& r, const Claim& claim, const Catalog& c,
                             const std::string& statement);
/// What bench/claims_mnist measured: one net on MNIST, whole processes of all frameworks.
struct MeasuredJob {
  struct Row {
    std::string name;
    double wall = 0, cpu = 0, peak = 0;  ///< seconds, processor seconds, resident bytes
  };
  std::string date;
  double steps = 0, batch = 0, threads = 0;
  std::vector<Row> rows;
};
/// Read its file. Throws Io, Format.
TD_API MeasuredJob measured_job(const std::string& path);

/// The statements that go around, evaluated; `job`: for the one whose job is not named.
TD_API std::vector<Evaluated> published_claims(const Catalog& c, const MeasuredJob* job = nullptr);
/// They as a page in Markdown.
TD_API std::string claims_page(const Catalog& c, const MeasuredJob* job = nullptr);

}  // namespace tandem::plan
