// SPDX-License-Identifier: Apache-2.0
// Names of devices.
#include "tandem/tensor/device.h"

namespace tandem {

std::string to_string(Device d) {
  return d.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(d.index);
}

}  // namespace tandem
