// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/schedules.h"

namespace tandem::optim {
namespace {

constexpr const ScheduleRow* kSchedules[] = {
#define X(row) &schedule_rows::row,
    TD_FOR_EACH_SCHEDULE(X)
#undef X
};

}  // namespace

Registry<ScheduleRow>& schedules() {
  static Registry<ScheduleRow> all("schedule", std::span<const ScheduleRow* const>(kSchedules));
  return all;
}

}  // namespace tandem::optim
