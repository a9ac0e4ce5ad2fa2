// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/doctor.h"

#include <fmt/format.h>

#include "tandem/backend/gpu/drivers.h"

namespace tandem::gpu {
namespace {

std::string line_of(const std::string& name, const std::string& value) {
  return fmt::format("{:<13}{}\n", name + ":", value);
}

std::string library_text(const LibraryReport& l) {
  if (!l.problem.empty()) return "off: " + l.problem;
  return l.version.empty() ? l.path : fmt::format("{} ({})", l.version, l.path);
}

std::string device_text(const DeviceInfo& d) {
  return fmt::format("{}; {}; {:.1f} GiB, {} units{}", d.name, d.version,
                     static_cast<double>(d.bytes) / (1 << 30), d.units, d.f64 ? "" : ", no f64");
}

}  // namespace

std::string doctor() {
  std::string text;
  for (Driver* driver : drivers()) {
    const std::vector<LibraryReport> libraries = driver->libraries();
    for (const LibraryReport& l : libraries) text += line_of(l.name, library_text(l));
    int devices = 0;
    const Status status = driver->count(devices);
    const bool told = !libraries.empty() && libraries[0].problem == status.text();
    if (!status.ok() && !told) text += line_of(driver->name(), "no device: " + status.text());
    for (int i = 0; i < devices; ++i) {
      DeviceInfo info;
      const Status known = driver->info(i, info);
      text += line_of(fmt::format("{}:{}", driver->name(), i),
                      known.ok() ? device_text(info) : known.text());
    }
  }
  return text + line_of("tensors", "on the CPU and on every device above, by its name");
}

}  // namespace tandem::gpu
