// SPDX-License-Identifier: Apache-2.0
// What people write after the options of `tandem plan`, read with its units. Whatever cannot be
// read is a Value error that names the option, what is wrong with the text, and the nearest text
// that can.
#pragma once

#include "tandem/plan/claims/claims.h"

namespace tandem::plan {

/// Seconds of "36h", "2d", "90m", "1d12h" or "3600" (in `unit`, "s" or "ms"); above 0.
TD_API double duration(const std::string& text, const std::string& option,
                       const std::string& unit = "s");
/// US dollars of "500", "$500", "1.5k" or "500 USD"; above 0.
TD_API double dollars(const std::string& text, const std::string& option);
/// "1e9", "300M", "1.2B"; above 0.
TD_API double amount(const std::string& text, const std::string& option);
/// A whole number within bounds.
TD_API int64_t whole_number(const std::string& text, const std::string& option, int64_t low,
                            int64_t high);
/// "4.2h" (time), "$500" or "500 USD" (cost), "10kWh" (energy), "2500/s" or "2500 images/s" (rate).
TD_API Claim claim_of(const std::string& text);
/// One of `known`.
TD_API std::string one_of(const std::string& text, const std::string& option,
                          const std::vector<std::string>& known);
/// "rps=200,p99=50ms".
TD_API ServeRequest serve_request(const std::string& text);

}  // namespace tandem::plan
