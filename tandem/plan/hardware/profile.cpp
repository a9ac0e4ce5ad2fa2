// SPDX-License-Identifier: Apache-2.0
// What `tandem bench --machine` measured, as a file.
#include <algorithm>
#include <iterator>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/files/private_folder.h"
#include "tandem/plan/hardware/catalog.h"
#include "tandem/plan/record_internal.h"

namespace tandem::plan {
namespace {

constexpr int kProfileSchema = 2;
struct ProfileField {
  const char* key;
  double MachineProfile::*field;
};
constexpr ProfileField kFields[] = {
    {"f32_flops", &MachineProfile::f32_flops},
    {"bf16_flops", &MachineProfile::bf16_flops},
    {"bandwidth", &MachineProfile::bandwidth},
    {"cache_bandwidth", &MachineProfile::cache_bandwidth},
    {"cache_bytes", &MachineProfile::cache_bytes},
    {"launch_seconds", &MachineProfile::launch_seconds},
    {"step_seconds", &MachineProfile::step_seconds},
    {"eager_call_seconds", &MachineProfile::eager_call_seconds},
    {"compiled_call_seconds", &MachineProfile::compiled_call_seconds},
    {"disk_rate", &MachineProfile::disk_rate},
    {"decode_seconds", &MachineProfile::decode_seconds},
    {"link_rate", &MachineProfile::link_rate},
    {"memory", &MachineProfile::memory},
};
}  // namespace

io::Json to_json(const MachineProfile& p) {
  io::Json::Object o;
  o.emplace_back("schema", kProfileSchema);
  o.emplace_back("cpu", p.cpu);
  o.emplace_back("date", p.date);
  o.emplace_back("threads", p.threads);
  for (const ProfileField& f : kFields) o.emplace_back(f.key, p.*f.field);
  io::Json::Array points;
  for (const MachineProfile::Point& q : p.points)
    points.push_back(
        io::Json(io::Json::Object{{"kind", q.kind},
                                  {"flops", q.flops},
                                  {"bytes", q.bytes},
                                  {"sizes", io::Json::Array{q.sizes[0], q.sizes[1], q.sizes[2]}},
                                  {"seconds", q.seconds}}));
  o.emplace_back("points", std::move(points));
  return io::Json(std::move(o));
}

MachineProfile machine_profile(const io::Json& j, const std::string& what) {
  Record r(j, what);
  MachineProfile p;
  r.schema(kProfileSchema, "run `tandem bench --machine` again");
  p.cpu = r.text("cpu");
  p.date = r.date("date");
  p.threads = static_cast<int>(r.whole("threads", 1, 1 << 16));
  for (const ProfileField& f : kFields) {
    const bool rate =
        f.field == &MachineProfile::bandwidth || f.field == &MachineProfile::f32_flops;
    p.*f.field = rate ? r.positive(f.key, 1e18) : r.number(f.key, 0, 1e18);
  }
  for (Record& e : r.rows("points", 0, 1000000)) {
    MachineProfile::Point q;
    q.kind = e.text("kind");
    q.flops = e.number("flops", 0, 1e18);
    q.bytes = e.number("bytes", 1, 1e18);
    const std::vector<double> sizes = e.numbers("sizes", 3, 0, 1e18);
    std::copy(sizes.begin(), sizes.end(), std::begin(q.sizes));
    q.seconds = e.number("seconds", 1e-12, 1e6);
    e.finish();
    p.points.push_back(std::move(q));
  }
  r.finish();
  return p;
}

namespace {
constexpr const char* kProfileFile = "machine.json";
}

std::string machine_profile_path() {
  const PrivateFolder cache = PrivateFolder::cache();
  return cache ? cache.path() + "/" + kProfileFile : "";
}

MachineProfile read_machine_profile(const std::string& file) {
  constexpr size_t kMost = size_t{1} << 26;
  const PrivateFolder cache = PrivateFolder::cache();
  const std::string path = !file.empty() ? file : cache ? cache.path() + "/" + kProfileFile : "";
  TD_CHECK(path.empty() || file_exists(path), Io,
           "{} is not there: this machine was not measured\nRun `tandem bench --machine` first.",
           path);
  const std::string text = file.empty() ? cache.read(kProfileFile, kMost) : read_file(path, kMost);
  return machine_profile(io::parse_json(text, path), path);
}

std::string write_machine_profile(const MachineProfile& profile, const std::string& file) {
  const std::string text = to_json(profile).dump(1) + "\n";
  if (file.empty()) {
    const PrivateFolder cache = PrivateFolder::cache();
    cache.write(kProfileFile, text);
    return cache.path() + "/" + kProfileFile;
  }
  if (const size_t at = file.rfind('/'); at != file.npos && at > 0)
    make_folders(file.substr(0, at));
  write_file(file, text);
  return file;
}

}  // namespace tandem::plan
