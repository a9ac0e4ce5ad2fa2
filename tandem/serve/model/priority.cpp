// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/priority_internal.h"

#include "tandem/base/error.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {

int64_t priority_of(const ModelSettings& s, int64_t asked) {
  if (asked < 0) refuse(400, "the priority is negative");
  if (s.priority_levels == 0) return 0;
  if (asked > s.priority_levels)
    refuse(400, "priority {}: the model has the levels 1 (the first) to {}", asked,
           s.priority_levels);
  if (asked > 0) return asked;
  return s.default_priority > 0 ? s.default_priority : s.priority_levels;
}

void check_priorities(const std::string& name, const ModelSettings& s) {
  TD_CHECK(s.priority_levels == 0 || s.default_priority <= s.priority_levels, Value,
           "'{}': default_priority {} is not one of its {} priority_levels", name,
           s.default_priority, s.priority_levels);
}

}  // namespace tandem::serve
