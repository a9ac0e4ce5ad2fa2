// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/catalog.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"

namespace tandem::plan {

const char* hardware_text();
const char* prices_text();

namespace {

/// Reads one object: every key must be asked for, every number lies within bounds.
class Reader {
 public:
  Reader(const io::Json& j, std::string where) : where_(std::move(where)) {
    object_ = j.as_object();
    if (!object_) fail("is to be an object, is " + std::string(j.kind()));
  }
  double number(const char* key, double low, double high, std::optional<double> otherwise = {}) {
    const io::Json* v = get(key, otherwise.has_value());
    if (!v) return *otherwise;
    const double d = v->as_int()      ? static_cast<double>(*v->as_int())
                     : v->as_double() ? *v->as_double()
                                      : NAN;
    if (std::isnan(d)) fail(fmt::format("'{}' is to be a number", key));
    if (!(d >= low && d <= high))
      fail(fmt::format("'{}' is {}, wants {} to {}{}", key, d, low, high,
                       d < 0 ? " (a price or a rate is not negative)" : ""));
    return d;
  }
  std::string text(const char* key, std::optional<std::string> otherwise = {}) {
    const io::Json* v = get(key, otherwise.has_value());
    if (!v) return *otherwise;
    if (!v->as_string() || v->as_string()->empty()) fail(fmt::format("'{}' is to be a text", key));
    return *v->as_string();
  }
  const io::Json::Array& list(const char* key) {
    const io::Json* v = get(key, false);
    if (!v->as_array()) fail(fmt::format("'{}' is to be a list", key));
    return *v->as_array();
  }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> out;
    for (const io::Json& v : list(key)) {
      if (!v.as_string()) fail(fmt::format("'{}' is to be a list of texts", key));
      out.push_back(*v.as_string());
    }
    return out;
  }
  const io::Json& any(const char* key) { return *get(key, false); }
  void skip(const char* key) { known_.insert(key); }
  void finish() const {
    std::vector<std::string> known(known_.begin(), known_.end());
    for (const auto& [key, v] : *object_)
      if (!known_.count(key)) {
        const std::string near = nearest_word(key, known);
        fail(fmt::format("'{}' is not known{}", key,
                         near.empty() ? "" : "; did you mean '" + near + "'?"));
      }
  }
  [[noreturn]] void fail(const std::string& reason) const {
    TD_FAIL(Format, "{}: {}", where_, reason);
  }
  const std::string& where() const { return where_; }

 private:
  const io::Json* get(const char* key, bool optional) {
    known_.insert(key);
    for (const auto& [k, v] : *object_)
      if (k == key) return &v;
    if (!optional) fail(fmt::format("'{}' is missing", key));
    return nullptr;
  }
  const io::Json::Object* object_ = nullptr;
  std::string where_;
  std::set<std::string> known_;
};

void check_head(Reader& r) {
  r.number("schema", 1, 1);
  r.skip("about");
}

std::string lower(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c == '_' ? '-' : c;
  return out;
}
template <class T>
const T& by_name(const std::vector<T>& all, const std::string& name, const char* what) {
  std::vector<std::string> names;
  std::map<std::string, std::string> proper;
  const std::string wanted = lower(name);
  const auto plain = [](const std::string& s) {
    std::string out;
    for (char c : lower(s))
      if (c != ' ' && c != '-') out += c;
    return out;
  };
  for (const T& t : all) {
    if (plain(t.name) == plain(wanted)) return t;
    names.push_back(lower(t.name));
    proper[names.back()] = t.name;
    for (const std::string& a : t.aliases) {
      if (plain(a) == plain(wanted)) return t;
      names.push_back(a);
      proper[a] = t.name;
    }
  }
  std::string near = nearest_word(wanted, names);
  if (!near.empty()) near = proper.at(near);
  std::string list;
  for (const T& t : all) list += (list.empty() ? "" : ", ") + t.name;
  TD_FAIL(Value, "there is no {} '{}'\n{}Known are {}; --hardware FILE adds your own.", what, name,
          near.empty() ? "" : "Did you mean '" + near + "'? ", list);
}

std::string entry(const std::string& what, const char* list, size_t k) {
  return fmt::format("{}: {}[{}]", what, list, k);
}

}  // namespace

double Gpu::peak(const std::string& kind) const {
  static const std::map<std::string, std::vector<std::string>> kWider = {
      {"f32", {"f32"}},
      {"tf32", {"tf32", "f32"}},
      {"bf16", {"bf16", "f16", "tf32", "f32"}},
      {"f16", {"f16", "bf16", "tf32", "f32"}},
      {"fp8", {"fp8", "bf16", "f16", "f32"}},
      {"int8", {"int8", "f16", "f32"}}};
  const auto at = kWider.find(kind);
  TD_CHECK(at != kWider.end(), Value, "there is no kind of numbers '{}'", kind);
  // bf16 on a card without it runs as f32; f16 there is no stand-in, since ranges differ.
  for (const std::string& k : at->second) {
    if (kind == "bf16" && k == "f16" && !flops.count("bf16")) continue;
    if (const auto f = flops.find(k); f != flops.end()) return f->second;
  }
  return flops.at("f32");
}

Catalog Catalog::built_in() { return load("", ""); }

Catalog Catalog::load(const std::string& hardware, const std::string& prices) {
  Catalog c;
  const auto text = [](const std::string& path, const char* built_in) {
    return path.empty() ? std::string(built_in) : read_file(path, size_t{1} << 24);
  };
  const std::string h = hardware.empty() ? "data/hardware.json" : hardware;
  const std::string p = prices.empty() ? "data/prices.json" : prices;
  c.read_hardware(io::parse_json(text(hardware, hardware_text()), h), h);
  c.read_prices(io::parse_json(text(prices, prices_text()), p), p);
  return c;
}

void Catalog::read_hardware(const io::Json& j, const std::string& what) {
  Reader r(j, what);
  check_head(r);
  date_ = r.text("date");
  size_t k = 0;
  std::set<std::string> names;
  const auto fresh = [&](const Reader& e, const std::string& name) {
    if (!names.insert(lower(name)).second) e.fail("'" + name + "' is there twice");
  };
  for (const io::Json& g : r.list("gpus")) {
    Reader e(g, entry(what, "gpus", k++));
    Gpu gpu;
    gpu.name = e.text("name");
    fresh(e, gpu.name);
    gpu.aliases = e.texts("aliases");
    gpu.memory = e.number("memory_gb", 1, 4096) * 1e9;
    gpu.bandwidth = e.number("bandwidth_gbs", 1, 1e6) * 1e9;
    Reader f(e.any("tflops"), e.where() + ".tflops");
    for (const char* kind : {"f32", "tf32", "f16", "bf16", "fp8", "int8"}) {
      const double v = f.number(
          kind, 0, 1e6, std::string(kind) == "f32" ? std::optional<double>() : std::optional(0.0));
      if (v > 0) gpu.flops[kind] = v * 1e12;
    }
    f.finish();
    gpu.link = e.text("link");
    gpu.link_rate = e.number("link_gbs", 0.01, 1e5) * 1e9;
    gpu.watts = e.number("watts", 1, 1e5);
    gpu.per_server = static_cast<int>(e.number("per_server", 1, 1024, 8));
    gpu.efficiency = e.number("efficiency", 0.01, 1, 0.65);
    gpu.efficiency_from = e.text("efficiency_from", "assumed");
    gpu.source = e.text("source");
    e.finish();
    gpus_.push_back(std::move(gpu));
  }
  k = 0;
  for (const io::Json& g : r.list("cpus")) {
    Reader e(g, entry(what, "cpus", k++));
    Cpu c;
    c.name = e.text("name");
    fresh(e, c.name);
    c.aliases = e.texts("aliases");
    c.cores = static_cast<int>(e.number("cores", 1, 4096));
    c.ghz = e.number("ghz", 0.1, 20);
    c.flops_per_cycle = e.number("flops_per_cycle", 1, 4096);
    c.bandwidth = e.number("bandwidth_gbs", 0.1, 1e5) * 1e9;
    c.watts = e.number("watts", 1, 1e5);
    c.source = e.text("source");
    e.finish();
    cpus_.push_back(std::move(c));
  }
  k = 0;
  for (const io::Json& g : r.list("disks")) {
    Reader e(g, entry(what, "disks", k++));
    Disk d;
    d.name = e.text("name");
    d.read_rate = e.number("read_gbs", 1e-3, 1e4) * 1e9;
    d.source = e.text("source");
    e.finish();
    disks_.push_back(std::move(d));
  }
  if (disks_.empty() || gpus_.empty()) r.fail("there are no gpus or no disks");
  r.finish();
}

void Catalog::read_prices(const io::Json& j, const std::string& what) {
  Reader r(j, what);
  check_head(r);
  prices_.date = r.text("date");
  if (r.text("currency") != "USD") r.fail("'currency' is to be USD");
  size_t k = 0;
  for (const io::Json& g : r.list("gpus")) {
    Reader e(g, entry(what, "gpus", k++));
    const std::string name = e.text("gpu");
    GpuPrice p;
    p.low = e.number("low", 0, 1e4);
    p.typical = e.number("typical", 0, 1e4);
    p.high = e.number("high", 0, 1e4);
    if (!(p.low <= p.typical && p.typical <= p.high))
      e.fail(
          fmt::format("low {} <= typical {} <= high {} does not hold", p.low, p.typical, p.high));
    p.buy = e.number("buy", 0, 1e7);
    p.host = e.number("host", 0, 1e7);
    e.finish();
    bool known = false;
    for (const Gpu& gpu : gpus_) known |= gpu.name == name;
    if (!known) by_name(gpus_, name, "GPU");
    if (!prices_.gpus.emplace(name, p).second) e.fail("'" + name + "' is there twice");
  }
  k = 0;
  for (const io::Json& g : r.list("terms")) {
    Reader e(g, entry(what, "terms", k++));
    prices_.terms.push_back({e.text("name"), e.number("discount", 0, 0.95)});
    e.finish();
  }
  Reader s(r.any("spot"), what + ": spot");
  prices_.spot_discount = s.number("discount", 0, 0.95);
  prices_.preemptions_per_day = s.number("preemptions_per_day", 0, 1000);
  prices_.restart_seconds = s.number("restart_minutes", 0, 1440) * 60;
  s.finish();
  prices_.surcharge = r.number("surcharge", 0, 10);
  prices_.storage_month = r.number("storage_gb_month", 0, 100) / 1e9;
  prices_.cold_month = r.number("cold_gb_month", 0, 100) / 1e9;
  prices_.electricity = r.number("electricity_kwh", 0, 100);
  prices_.pue = r.number("pue", 1, 5);
  prices_.cpu_core_hour = r.number("cpu_hour_per_core", 0, 100);
  r.finish();
}

const Gpu& Catalog::gpu(const std::string& name) const { return by_name(gpus_, name, "GPU"); }
const Cpu& Catalog::cpu(const std::string& name) const { return by_name(cpus_, name, "CPU"); }
const GpuPrice& Catalog::price(const Gpu& gpu) const {
  const auto at = prices_.gpus.find(gpu.name);
  TD_CHECK(at != prices_.gpus.end(), Value,
           "there is no price of {}\nAdd it to a file of prices and give --prices FILE.", gpu.name);
  return at->second;
}

// ---- the machine's profile

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
  Reader r(j, what);
  MachineProfile p;
  if (r.number("schema", 0, 1e9) != kProfileSchema)
    r.fail("it was written by another version; run `tandem bench --machine` again");
  p.cpu = r.text("cpu");
  p.date = r.text("date");
  p.threads = static_cast<int>(r.number("threads", 1, 1 << 16));
  for (const ProfileField& f : kFields) p.*f.field = r.number(f.key, 0, 1e18);
  size_t k = 0;
  for (const io::Json& g : r.list("points")) {
    Reader e(g, entry(what, "points", k++));
    MachineProfile::Point q;
    q.kind = e.text("kind");
    q.flops = e.number("flops", 0, 1e18);
    q.bytes = e.number("bytes", 1, 1e18);
    const io::Json::Array& sizes = e.list("sizes");
    for (size_t i = 0; i < 3; ++i) {
      const io::Json* v = i < sizes.size() ? &sizes[i] : nullptr;
      q.sizes[i] = v && v->as_int()      ? static_cast<double>(*v->as_int())
                   : v && v->as_double() ? *v->as_double()
                                         : -1;
      if (!(q.sizes[i] >= 0 && q.sizes[i] <= 1e18)) e.fail("'sizes' is to be three counts");
    }
    q.seconds = e.number("seconds", 1e-12, 1e6);
    e.finish();
    p.points.push_back(q);
  }
  r.finish();
  if (p.bandwidth <= 0 || p.f32_flops <= 0) r.fail("'bandwidth' and 'f32_flops' are to be above 0");
  return p;
}

std::string machine_profile_path() {
  if (const char* p = std::getenv("TANDEM_CACHE_DIR"); p && *p)
    return std::string(p) + "/machine.json";
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  return (cache && *cache ? std::string(cache) : std::string(home ? home : "/tmp") + "/.cache") +
         "/tandem/machine.json";
}

}  // namespace tandem::plan
