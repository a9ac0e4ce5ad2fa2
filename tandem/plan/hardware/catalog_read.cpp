// SPDX-License-Identifier: Apache-2.0
// data/hardware.json and data/prices.json, or files in their place, read with every bound.
#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/plan/hardware/catalog.h"
#include "tandem/plan/names_internal.h"
#include "tandem/plan/record_internal.h"

namespace tandem::plan {

const char* hardware_text();
const char* prices_text();

namespace {

constexpr int kHardwareSchema = 4, kPricesSchema = 2;
constexpr size_t kMostRows = 1000, kMostAliases = 50;

// Names of a list: none is another's, however it is written.
class Names {
 public:
  void add(const Record& row, const std::string& name,
           const std::vector<std::string>& aliases = {}) {
    std::vector<std::string> all = aliases;
    all.insert(all.begin(), name);
    for (size_t k = 0; k < all.size(); ++k) {
      const std::string plain = plain_name(all[k]);
      if (plain.empty()) row.fail("'" + all[k] + "' names a maker, not a product");
      const auto [at, fresh] = owner_.try_emplace(plain, name);
      if (!fresh && (k == 0 || at->second != name))
        row.fail(fmt::format("'{}' is a name of the row '{}' before it, expected one of its own",
                             all[k], at->second));
    }
  }

 private:
  std::map<std::string, std::string> owner_;
};

void head(Record& r, int schema, const char* other_key, const char* advice) {
  if (r.has(other_key)) r.fail(advice);
  r.schema(schema, "take a copy of the newer file in data/ and change that");
  r.skip("about");
}

Rate rate(Record& r, const char* key, double low, double high) {
  Record e = r.object(key);
  Rate out{e.number("value", low, high), e.source("source")};
  e.finish();
  return out;
}

Gpu read_gpu(Record& e) {
  Gpu gpu;
  gpu.name = e.text("name");
  e.called(gpu.name);
  gpu.aliases = e.texts("aliases", kMostAliases);
  gpu.memory = e.number("memory_mib", 256, 4 << 20) * 0x1p20;
  gpu.memory_from = e.source("memory_from");
  gpu.bandwidth = e.number("bandwidth_gbs", 1, 1e6) * 1e9;
  Record f = e.object("tflops");
  for (const char* kind : {"f32", "tf32", "f16", "bf16", "fp8", "int8"})
    if (kind == std::string("f32") || f.has(kind)) gpu.flops[kind] = f.positive(kind, 1e6) * 1e12;
  f.finish();
  gpu.link = e.text("link");
  gpu.link_rate = e.number("link_gbs", 0.01, 1e5) * 1e9;
  if (e.has("network_gbs")) {
    gpu.network = e.number("network_gbs", 0.01, 1e5) * 1e9;
    gpu.network_from = e.source("network_from");
  }
  gpu.watts = e.number("watts", 1, 1e5);
  gpu.processors = static_cast<int>(e.whole("processors", 1, 100000));
  gpu.per_server = static_cast<int>(e.whole("per_server", 1, 1024));
  gpu.efficiency = e.number("efficiency", 0.01, 1);
  gpu.efficiency_from = e.source("efficiency_from");
  if (e.has("attention")) {
    const std::vector<double> shares = e.numbers("attention", 2, 0.01, 1);
    gpu.attention = {shares[0], shares[1]};
    gpu.attention_from = e.source("attention_from");
  }
  gpu.source = e.source("source");
  e.finish();
  return gpu;
}

Cpu read_cpu(Record& e) {
  Cpu c;
  c.name = e.text("name");
  e.called(c.name);
  c.aliases = e.texts("aliases", kMostAliases);
  c.cores = static_cast<int>(e.whole("cores", 1, 4096));
  c.ghz = e.number("ghz", 0.1, 20);
  c.flops_per_cycle = e.number("flops_per_cycle", 1, 4096);
  c.bandwidth = e.number("bandwidth_gbs", 0.1, 1e5) * 1e9;
  c.watts = e.number("watts", 1, 1e5);
  c.source = e.source("source");
  e.finish();
  return c;
}

GpuPrice read_price(Record& e) {
  GpuPrice p;
  p.low = e.positive("low", 1e4);
  p.typical = e.positive("typical", 1e4);
  p.high = e.positive("high", 1e4);
  if (!(p.low <= p.typical && p.typical <= p.high))
    e.fail(
        fmt::format("'low' {}, 'typical' {} and 'high' {} want to rise", p.low, p.typical, p.high));
  p.buy = e.number("buy", 0, 1e7);
  p.host = e.number("host", 0, 1e7);
  p.source = e.source("source");
  p.buy_source = e.source("buy_source");
  e.finish();
  return p;
}

}  // namespace

Catalog Catalog::built_in() { return load("", ""); }

Catalog Catalog::load(const std::string& hardware, const std::string& prices) {
  Catalog c;
  const auto json = [](const std::string& path, const char* built_in, const std::string& what) {
    return io::parse_json(path.empty() ? std::string(built_in) : read_file(path, size_t{1} << 24),
                          what, {.depth = 16, .values = size_t{1} << 18});
  };
  const std::string h = hardware.empty() ? "data/hardware.json" : hardware;
  const std::string p = prices.empty() ? "data/prices.json" : prices;
  c.read_hardware(json(hardware, hardware_text(), h), h);
  c.read_prices(json(prices, prices_text(), p), p, prices.empty() && !hardware.empty());
  return c;
}

void Catalog::read_hardware(const io::Json& j, const std::string& what) {
  Record r(j, what);
  head(r, kHardwareSchema, "currency",
       "it holds prices: give it to --prices, and one of hardware to --hardware");
  date_ = r.date("date");
  Names gpus, cpus, disks;
  for (Record& e : r.rows("gpus", 1, kMostRows)) {
    gpus_.push_back(read_gpu(e));
    gpus.add(e, gpus_.back().name, gpus_.back().aliases);
  }
  for (Record& e : r.rows("cpus", 0, kMostRows)) {
    cpus_.push_back(read_cpu(e));
    cpus.add(e, cpus_.back().name, cpus_.back().aliases);
  }
  for (Record& e : r.rows("disks", 1, kMostRows)) {
    Disk d;
    d.name = e.text("name");
    e.called(d.name);
    disks.add(e, d.name);
    d.read_rate = e.number("read_gbs", 1e-3, 1e4) * 1e9;
    d.reads = e.number("reads_per_s", 1, 1e9);
    d.source = e.source("source");
    e.finish();
    disks_.push_back(std::move(d));
  }
  r.finish();
}

void Catalog::read_prices(const io::Json& j, const std::string& what, bool of_unknown_gpus) {
  Record r(j, what);
  head(r, kPricesSchema, "cpus",
       "it holds hardware: give it to --hardware, and one of prices to --prices");
  prices_.file = what;
  prices_.date = r.date("date");
  if (const std::string currency = r.text("currency"); currency != "USD")
    r.fail("'currency' is the text " + io::quote_json(currency) + ", expected \"USD\"");
  for (Record& e : r.rows("gpus", 0, kMostRows)) {
    const std::string name = e.text("gpu");
    e.called(name);
    std::string known;
    try {
      known = gpu(name).name;
    } catch (const Error& error) {
      if (of_unknown_gpus) continue;
      e.fail(error.message() + ", expected one of the file of hardware\n" + error.hint());
    }
    if (!prices_.gpus.emplace(known, read_price(e)).second)
      e.fail("its GPU has a price in a row before it, expected one row for each");
  }
  Names terms;
  for (Record& e : r.rows("terms", 1, kMostRows)) {
    Term t;
    t.name = e.text("name");
    e.called(t.name);
    terms.add(e, t.name);
    if (t.name == "spot")
      e.fail("'name' is spot, which is reserved: spot machines stand under 'spot'");
    t.discount = e.number("discount", 0, 0.95);
    t.source = e.source("source");
    e.finish();
    prices_.terms.push_back(std::move(t));
  }
  bool hourly = false;
  for (const Term& t : prices_.terms) hourly |= t.name == "hourly";
  if (!hourly) r.fail("'terms' has no row 'hourly', expected one: plans without --term use it");
  Record s = r.object("spot");
  prices_.spot.discount = s.number("discount", 0, 0.95);
  prices_.spot.preemptions_per_day = s.number("preemptions_per_day", 0, 1000);
  prices_.spot.restart_seconds = s.number("restart_minutes", 0, 1440) * 60;
  prices_.spot.source = s.source("source");
  s.finish();
  prices_.surcharge = rate(r, "surcharge", 0, 10);
  prices_.storage_month = rate(r, "storage_gb_month", 0, 100);
  prices_.cold_month = rate(r, "cold_gb_month", 0, 100);
  prices_.electricity = rate(r, "electricity_kwh", 0, 100);
  prices_.pue = rate(r, "pue", 1, 5);
  r.finish();
}

}  // namespace tandem::plan
