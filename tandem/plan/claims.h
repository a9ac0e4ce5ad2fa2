// SPDX-License-Identifier: Apache-2.0
// Published statements about training, judged by arithmetic: what peak hardware allows, what a plan
// expects, what power times hours costs.
#pragma once

#include "tandem/plan/plan.h"

namespace tandem::plan {

enum class Verdict : uint8_t { possible, unlikely, impossible, unclear };
TD_API const char* to_string(Verdict v);

struct Judged {
  std::string statement;
  Verdict verdict = Verdict::unclear;
  std::vector<Quantity> arithmetic;  ///< each adds up
  std::string why;
};

/// "MODEL trains through DATA, EPOCHS times, on N GPUs in SECONDS": the rate that this asks for,
/// against the arithmetic's limit (impossible above) and the plan (unlikely above 1.3 times it).
TD_API Judged check_training_claim(const PlanRequest& r, double seconds, const Catalog& c,
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

/// The statements that go around, judged; `job`: for the one whose job is not named.
TD_API std::vector<Judged> published_claims(const Catalog& c, const MeasuredJob* job = nullptr);
/// They as a page in Markdown.
TD_API std::string claims_page(const Catalog& c, const MeasuredJob* job = nullptr);

}  // namespace tandem::plan
