// SPDX-License-Identifier: Apache-2.0
// What the published statements share. Not installed.
#pragma once

#include "tandem/plan/claims/claims.h"

namespace tandem::plan {

/// A figure of a statement.
Quantity said(const std::string& key, const std::string& label, double value,
              const std::string& unit);
/// Two figures of a statement that are to agree with each other within `tolerance`; `holds` and
/// `fails`: what is said if so, if not.
Evaluated agree(const std::string& statement, Quantity from, Quantity other, double tolerance,
                const std::string& holds, const std::string& fails);
/// Statements about prices of GPUs and about what a server needs.
std::vector<Evaluated> claims_of_servers(const Catalog& c);

}  // namespace tandem::plan
