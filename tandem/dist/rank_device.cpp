// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/rank_device.h"

#include "tandem/base/error.h"

namespace tandem::distributed {

Device device_of_rank(std::string_view name, const Place& place) {
  const Device first = device_named(name);
  if (is_host(first) || place.local_size < 2 || name.find(':') != name.npos) return first;
  const std::string all = to_string(first);
  const std::string own = fmt::format("{}:{}", all.substr(0, all.find(':')), place.local_rank);
  try {
    return device_named(own);
  } catch (const Error& e) {
    TD_FAIL(Value,
            "rank {} of the {} on this machine means {} by '{}': {}\nStart as many ranks as there "
            "are devices, or name one for all of them: '{}'.",
            place.local_rank, place.local_size, own, name, e.message(), all);
  }
}

}  // namespace tandem::distributed
