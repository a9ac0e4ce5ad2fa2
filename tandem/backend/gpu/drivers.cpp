// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/drivers.h"

#include <string>

#include "tandem/base/error.h"

namespace tandem::gpu {

std::span<Driver* const> drivers() {
  static Driver* const all[] = {&cuda_driver(), &opencl_driver(), &fake_driver()};
  return all;
}

Driver& driver_named(std::string_view name) {
  for (Driver* d : drivers()) {
    if (name == d->name()) return *d;
  }
  TD_FAIL(Value, "no driver is called {}; there are cuda, opencl and fake", std::string(name));
}

}  // namespace tandem::gpu
