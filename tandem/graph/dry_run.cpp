// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/dry_run.h"

namespace tandem {
namespace {
thread_local bool t_any_device = false;
}  // namespace

DryRunGuard::DryRunGuard(DryRunOptions options)
    : memory_(make_ref<DryMemory>()), generator_(generator_state()) {
  TD_CHECK(!is_dry_run(), Unsupported, "a dry run inside a dry run\nOne DryRunGuard is enough.");
  context().slow |= kDryRun;
  t_any_device = !options.this_backend;
  detail::set_dry_memory(memory_.get());
}

DryRunGuard::~DryRunGuard() {
  context().slow &= ~kDryRun;
  t_any_device = false;
  detail::set_dry_memory(nullptr);
  set_generator_state(generator_);
}

bool is_dry_run() { return context().slow & kDryRun; }
bool is_dry_run_of_any_device() { return t_any_device; }

}  // namespace tandem
