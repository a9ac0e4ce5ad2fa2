// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/rank_device.h"

#include "tandem/base/error.h"

namespace tandem::distributed {

namespace {

std::string kind_of(Device d) {
  const std::string name = to_string(d);
  return name.substr(0, name.find(':'));
}

}  // namespace

int count_devices(std::string_view name) {
  const Device first = device_named(name);
  if (is_host(first) || name.find(':') != name.npos) return 1;
  int count = 1;
  try {
    while (true) {
      (void)device_named(fmt::format("{}:{}", kind_of(first), count));
      ++count;
    }
  } catch (const Error&) {  // there is none of that number
  }
  return count;
}

Device device_of_rank(std::string_view name, const Place& place) {
  const Device first = device_named(name);
  if (is_host(first) || place.local_size < 2 || name.find(':') != name.npos) return first;
  const std::string all = to_string(first);
  const std::string own = fmt::format("{}:{}", kind_of(first), place.local_rank);
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
