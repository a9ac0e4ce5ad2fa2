// SPDX-License-Identifier: Apache-2.0
// Files of hardware and prices: what they hold, where it comes from, and files that are broken or
// hostile. Each is refused with the file, the row, the key, what came and what is wanted.
#include "tandem/plan/hardware/catalog.h"

#include <cstdlib>
#include <map>

#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/tandem.h"
#include "tests/plan/plan_helper.h"

namespace tandem::plan {
namespace {

std::string data_file(const std::string& name) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return read_file((root ? std::string(root) + "/" : std::string()) + "data/" + name,
                   size_t{1} << 20);
}
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}
// The row of a list that begins so, without the comma behind it.
std::string row(const std::string& text, const std::string& begins) {
  const size_t at = text.find(begins), end = text.find('\n', at);
  EXPECT_NE(at, text.npos) << begins;
  std::string r = text.substr(at, end - at);
  if (r.back() == ',') r.pop_back();
  return r;
}

TEST(Catalog, EveryRowSaysWhereItComesFrom) {
  const Catalog c = Catalog::built_in();
  EXPECT_GE(c.gpus().size(), 18u);
  int documents = 0, assumed = 0;
  const auto look = [&](const std::string& source) {
    EXPECT_GE(source.size(), 12u) << source;
    (source.starts_with("assumed: ") ? assumed : documents) += 1;
  };
  for (const Gpu& g : c.gpus()) {
    look(g.source);
    look(g.efficiency_from);
    ASSERT_TRUE(c.has_price(g)) << g.name;
    look(c.price(g).source);
    look(c.price(g).buy_source);
  }
  for (const Cpu& p : c.cpus()) look(p.source);
  for (const Disk& d : c.disks()) look(d.source);
  for (const Term& t : c.prices().terms) look(t.source);
  const Prices& p = c.prices();
  for (const Rate* r : {&p.surcharge, &p.storage_month, &p.cold_month, &p.electricity, &p.pue})
    look(r->source);
  look(p.spot.source);
  // Every accelerator's figures are documented; prices often are not.
  for (const Gpu& g : c.gpus()) EXPECT_FALSE(g.source.starts_with("assumed")) << g.name;
  EXPECT_GE(documents, 35);
  EXPECT_GE(assumed, 10);
}

// One core's f32 operations a cycle, by its vector units: two that multiply and add, of 256 bits
// from Zen 2 to Zen 4, of 512 bits in Xeons since Skylake.
TEST(Catalog, ProcessorsByTheirVectorUnits) {
  const Catalog c = Catalog::built_in();
  const std::map<std::string, double> kBits = {{"EPYC 7742", 256},
                                               {"EPYC 9654", 256},
                                               {"Ryzen 9 7950X", 256},
                                               {"Xeon Platinum 8480+", 512},
                                               {"Xeon Gold 6338", 512}};
  for (const Cpu& p : c.cpus()) {
    ASSERT_TRUE(kBits.count(p.name)) << p.name << ": what are its vector units?";
    EXPECT_EQ(p.flops_per_cycle, 2 * 2 * kBits.at(p.name) / 32) << p.name;
  }
}

// What README.md counts is what is there.
TEST(Catalog, ReadmeCountsTheGpus) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const std::string readme =
      read_file((root ? std::string(root) + "/" : std::string()) + "README.md", size_t{1} << 20);
  const size_t gpus = Catalog::built_in().gpus().size();
  EXPECT_NE(readme.find(fmt::format("energy on {} GPUs", gpus)), readme.npos)
      << "README.md expects to say " << gpus;
}

TEST(Catalog, WhyShowsTheSources) {
  init();
  const Catalog c = Catalog::built_in();
  PlanRequest r = request("resnet18", "h100");
  r.tokens = 1e6;
  const Plan p = make_plan(r, c);
  const Gpu& gpu = c.gpu("h100");
  for (const auto& [key, source] : std::vector<std::pair<std::string, std::string>>{
           {"price", c.price(gpu).source},
           {"price", "data/prices.json of " + c.prices().date},
           {"price.surcharge", c.prices().surcharge.source},
           {"price.term", c.prices().terms[0].source},
           {"cost", c.price(gpu).source},
           {"cost.storage", c.prices().storage_month.source},
           {"cost.cold", c.prices().cold_month.source},
           {"power", c.prices().pue.source},
           {"buy.hours", c.price(gpu).buy_source},
           {"buy.hours", c.prices().electricity.source},
           {"memory.free", gpu.memory_from},
           {"rate", gpu.source},
           {"rate", gpu.efficiency_from}}) {
    const std::string why = explain(p, key);
    EXPECT_NE(why.find(source), std::string::npos) << key << " does not say " << source << "\n"
                                                   << why;
  }
}

TEST(Catalog, Names) {
  const Catalog c = Catalog::built_in();
  for (const auto& [asked, name] :
       std::vector<std::pair<const char*, const char*>>{{"h100", "H100 SXM"},
                                                        {"H100_SXM", "H100 SXM"},
                                                        {"NVIDIA H100 80GB HBM3", "H100 SXM"},
                                                        {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
                                                        {"NVIDIA A100-SXM4-40GB", "A100 40GB"},
                                                        {"a100 40 gb", "A100 40GB"},
                                                        {"NVIDIA GeForce RTX 4090", "RTX 4090"},
                                                        {"rtx-4090", "RTX 4090"},
                                                        {"4090", "RTX 4090"},
                                                        {"Tesla T4", "T4"},
                                                        {"NVIDIA A10G", "A10G"},
                                                        {"NVIDIA A100 80GB PCIe", "A100 PCIe"},
                                                        {"AMD Instinct MI300X", "MI300X"},
                                                        {"6000 Ada", "RTX 6000 Ada"}})
    EXPECT_EQ(c.gpu(asked).name, name) << asked;
  EXPECT_EQ(c.cpu("AMD EPYC 9654").name, "EPYC 9654");
}

// A file of hardware may leave GPUs out; their built-in prices go with them.
TEST(Catalog, AFileOfFewGpus) {
  init();
  const std::string text = data_file("hardware.json"), file = testing::TempDir() + "/few.json";
  const std::string one = row(text, "{\"name\": \"L4\"");
  const size_t from = text.find("\"gpus\": ["), to = text.find("\n  ],", from);
  write_file(file, text.substr(0, from) + "\"gpus\": [" + one + text.substr(to));
  const Catalog c = Catalog::load(file, "");
  EXPECT_EQ(c.gpus().size(), 1u);
  EXPECT_EQ(c.prices().gpus.size(), 1u);
  // Where nothing fits, the available ones are used.
  PlanRequest r = request("llama:7b", "");
  const Plan p = make_plan(r, c);
  EXPECT_EQ(p.gpu.name, "L4");
  EXPECT_FALSE(p.fits);
  // A GPU that is not in data/prices.json is known and has no price.
  write_file(file, text.substr(0, from) + "\"gpus\": [" +
                       changed(one, "\"name\": \"L4\"", "\"name\": \"My GPU\"") + text.substr(to));
  const Catalog mine = Catalog::load(file, "");
  EXPECT_ERROR(Value, "data/prices.json has no price of My GPU", mine.price(mine.gpu("my gpu")));
  r.gpu = "my gpu";
  EXPECT_ERROR(Value, "give --prices FILE", make_plan(r, mine));
  r.gpu = "";
  EXPECT_ERROR(Value, "no GPU has a price", make_plan(r, mine));
}

struct Broken {
  bool prices;  // else hardware
  std::string from, to, wanted;
};

// table: a change each and what is said of it
TEST(CatalogMustFail, BrokenRows) {
  const std::string hardware = data_file("hardware.json"), prices = data_file("prices.json");
  const std::string t4 = "{\"gpu\": \"T4\"", l4 = row(hardware, "{\"name\": \"L4\"");
  const std::string long_text(500, 'x');
  const std::vector<Broken> kTable = {
      // Missing keys, with what they want; a misspelt one is named.
      {true, "\"low\": 0.15, ", "", "gpus[0] (T4): 'low' is missing, expected a number above 0"},
      {true, "\"typical\": 0.35", "\"typicl\": 0.35",
       "gpus[0] (T4): 'typical' is missing, expected a number above 0 and up to 10000; is 'typicl' "
       "meant to be it?"},
      {true, "{\"gpu\": \"T4\", ", "{", "gpus[0]: 'gpu' is missing, expected a text"},
      {true, ", \"buy_source\": ", ", \"by_source\": ", "is 'by_source' meant to be it?"},
      {true, "\"pue\": {\"value\": 1.25, ", "\"pue\": {", "pue: 'value' is missing"},
      {true, "\"surcharge\": ", "\"surcharges\": ", "'surcharge' is missing, expected an object"},
      {true, "\"currency\": \"USD\",", "", "'currency' is missing"},
      {true, "\"date\": \"2026-11-22\",", "", "'date' is missing, expected a date as"},
      {true, "\"schema\": 2,", "", "'schema' is missing, expected a whole number"},
      {false, "\"memory_mib\": 15360, ", "",
       "gpus[0] (T4): 'memory_mib' is missing, expected a number from 256 to 4194304"},
      {false, "\"f32\": 8.1, ", "", "gpus[0] (T4), tflops: 'f32' is missing"},
      {false, "\"disks\"", "\"discs\"",
       "'disks' is missing, expected a list of 1 to 1000; is 'discs'"},
      // Wrong types.
      {true, "\"low\": 0.15", "\"low\": \"0.15\"",
       "gpus[0] (T4): 'low' is the text \"0.15\", expected a number"},
      {true, "\"low\": 0.15", "\"low\": null", "'low' is null, expected a number"},
      {true, "\"low\": 0.15", "\"low\": true", "'low' is true, expected a number"},
      {true, "\"low\": 0.15", "\"low\": [0.15]", "'low' is a list of 1, expected a number"},
      {true, "\"low\": 0.15", "\"low\": {}", "'low' is an object, expected a number"},
      {true, "\"gpu\": \"T4\"", "\"gpu\": 4", "gpus[0]: 'gpu' is 4, expected a text"},
      {true, row(prices, t4), "17", "gpus[0] is 17, expected an object"},
      {true, "\"terms\": [", "\"terms\": 3, \"x\": [",
       "'terms' is 3, expected a list of 1 to 1000"},
      {true, "\"spot\": {", "\"spot\": [], \"x\": {", "spot is a list of 0, expected an object"},
      {true, "\"electricity_kwh\": {\"value\": 0.12,",
       "\"electricity_kwh\": {\"value\": \"12 ct\",",
       "electricity_kwh: 'value' is the text \"12 ct\", expected a number from 0 to 100"},
      {false, "\"aliases\": []", "\"aliases\": \"t4\"",
       "gpus[0] (T4): 'aliases' is the text \"t4\", expected a list of 0 to 50"},
      {false, "\"aliases\": []", "\"aliases\": [7]", "'aliases'[0] is 7, expected a text"},
      {false, "\"tflops\": {\"f32\": 8.1,", "\"tflops\": 8.1, \"x\": {\"f32\": 8.1,",
       "gpus[0] (T4), tflops is 8.1, expected an object"},
      {false, "\"per_server\": 4", "\"per_server\": 3.5",
       "'per_server' is 3.5, expected a whole number from 1 to 1024"},
      // Bounds.
      {true, "\"low\": 0.15", "\"low\": -0.15",
       "gpus[0] (T4): 'low' is -0.15, expected a number above 0 and up to 10000"},
      {true, "\"low\": 0.15", "\"low\": 0", "'low' is 0, expected a number above 0"},
      {true, "\"low\": 0.15", "\"low\": 9", "'low' 9, 'typical' 0.35 and 'high' 0.55 want to rise"},
      {true, "\"high\": 0.55", "\"high\": 1e300", "'high' is 1e+300, expected"},
      {true, "\"high\": 0.55", "\"high\": 123456789012345678901234567890",
       "'high' is 1.2345678901"},
      {true, "\"buy\": 900", "\"buy\": -1", "'buy' is -1, expected a number from 0"},
      {true, "\"pue\": {\"value\": 1.25", "\"pue\": {\"value\": 0.9",
       "pue: 'value' is 0.9, expected a number from 1 to 5"},
      {true, "\"discount\": 0.6,", "\"discount\": 1.6,", "spot: 'discount' is 1.6, expected"},
      {true, "\"preemptions_per_day\": 2", "\"preemptions_per_day\": -2",
       "'preemptions_per_day' is -2"},
      {false, "\"memory_mib\": 15360", "\"memory_mib\": 16e9", "'memory_mib' is 16000000000"},
      {false, "\"efficiency\": 0.52", "\"efficiency\": 45", "'efficiency' is 45, expected"},
      {false, "\"processors\": 40, ", "", "gpus[0] (T4): 'processors' is missing"},
      {false, "\"processors\": 40", "\"processors\": 0", "'processors' is 0, expected"},
      {false, "\"attention\": [0.67, 0.34]", "\"attention\": [0.67]",
       "gpus[12] (A100 40GB): 'attention' is a list of 1, expected a list of 2"},
      {false, "\"attention\": [0.67, 0.34]", "\"attention\": [0.67, 3.4]",
       "gpus[12] (A100 40GB): 'attention'[1] is 3.4, expected"},
      {false, "\"network_gbs\": 50", "\"network_gbs\": -50",
       "gpus[15] (H100 PCIe): 'network_gbs' is -50, expected"},
      {false, "\"watts\": 70", "\"watts\": 0", "gpus[0] (T4): 'watts' is 0, expected"},
      {false, "\"cores\": 64", "\"cores\": 0", "cpus[0] (EPYC 7742): 'cores' is 0, expected"},
      {false, "\"read_gbs\": 7.0", "\"read_gbs\": -7", "disks[0] (NVMe PCIe 4): 'read_gbs' is -7"},
      {true, "2026-11-22", "22.11.2026", "'date' is the text \"22.11.2026\", expected a date as"},
      {false, "2026-11-22", "2026-13-22", "'date' is the text \"2026-13-22\", expected a date"},
      // Sources.
      {false, "\"source\": \"NVIDIA T4 data sheet (2018)\"", "\"source\": \"the internet\"",
       "gpus[0] (T4): 'source' is the text \"the internet\", expected a public document or page "
       "with "
       "its year"},
      {false, "\"source\": \"NVIDIA T4 data sheet (2018)\"", "\"source\": \"assumed: \"",
       "or \"assumed: \" and the reason"},
      {false, "\"source\": \"NVIDIA T4 data sheet (2018)\"", "\"source\": \"number 120180\"",
       "expected a public document"},
      {false, ", \"source\": \"NVIDIA T4 data sheet (2018)\"", "",
       "gpus[0] (T4): 'source' is missing"},
      {true, ", \"source\": \"assumed: the price of an hour itself\"", "",
       "terms[0] (hourly): 'source' is missing"},
      // Names: twice, written otherwise, unknown, empty, hostile.
      {false, l4, l4 + ",\n" + l4, "gpus[2] (L4): 'L4' is a name of the row 'L4' before it"},
      {false, "\"name\": \"A10\"", "\"name\": \"l-4\"",
       "gpus[2] (l-4): 'l-4' is a name of the row 'L4'"},
      {false, "\"name\": \"A10\", \"aliases\": []",
       "\"name\": \"A10\", \"aliases\": [\"NVIDIA T4\"]",
       "gpus[2] (A10): 'NVIDIA T4' is a name of the row 'T4'"},
      {false, "\"name\": \"T4\"", "\"name\": \"NVIDIA\"", "names a maker, not a product"},
      {false, "\"name\": \"T4\"", "\"name\": \"\"",
       "gpus[0]: 'name' is the text \"\", expected a text"},
      {false, "\"name\": \"T4\"", "\"name\": \"" + long_text + "\"",
       "xxx...\", expected a text of 1 to"},
      {false, "\"name\": \"T4\"", "\"name\": \"T4\\u001b[2J\"", "printable characters"},
      {false, "\"name\": \"SATA SSD\"", "\"name\": \"hard disk\"",
       "disks[3] (hard disk): 'hard disk' is a name of the row"},
      {true, row(prices, t4), row(prices, t4) + ",\n" + row(prices, t4),
       "gpus[1] (T4): its GPU has a price in a row before it"},
      {true, "\"gpu\": \"RTX 3090\"", "\"gpu\": \"4090\"",
       "gpus[10] (RTX 4090): its GPU has a price in a row before it"},
      {true, "\"gpu\": \"T4\"", "\"gpu\": \"T44\"",
       "gpus[0] (T44): there is no GPU 'T44', expected one of the file of hardware"},
      {true, "\"name\": \"1 year\"", "\"name\": \"hourly\"",
       "terms[1] (hourly): 'hourly' is a name"},
      {true, "\"name\": \"1 year\"", "\"name\": \"spot\"", "terms[1] (spot): 'name' is spot"},
      {true, "\"name\": \"hourly\"", "\"name\": \"per hour\"", "'terms' has no row 'hourly'"},
      // Keys that nobody knows.
      {true, "\"low\": 0.15", "\"low\": 0.15, \"lows\": 1",
       "gpus[0] (T4): \"lows\" is not known here, did you mean 'low'?; known are buy, "},
      {false, "\"int8\": 130", "\"int8\": 130, \"int9\": 1",
       "gpus[0] (T4), tflops: \"int9\" is not known here, did you mean 'int8'?"},
      {true, "\"about\"", "\"nothing\"", "\"nothing\" is not known here"},
      {true, "\"low\": 0.15", "\"low\": 0.15, \"low\": 0.15", "the key \"low\" appears twice"},
      // Other files.
      {true, "\"currency\": \"USD\"", "\"currency\": \"EUR\"",
       "'currency' is the text \"EUR\", expected \"USD\""},
      {true, "\"schema\": 2", "\"schema\": 1",
       "'schema' is 1, expected 2: it was written for another version; take a copy of the newer "
       "file"},
      {false, "\"schema\": 4", "\"schema\": 5", "'schema' is 5, expected 4"},
      {false, "\"schema\": 4", "\"schema\": \"4\"",
       "'schema' is the text \"4\", expected a whole number"},
      {true, "\"terms\"", "\"cpus\"", "it holds hardware: give it to --hardware"},
      {false, "\"disks\"", "\"currency\"", "it holds prices: give it to --prices"},
      // No JSON.
      {true, "\"low\": 0.15", "\"low\": NaN", "invalid JSON at byte"},
      {true, "\"low\": 0.15", "\"low\": Infinity", "invalid JSON at byte"},
      {true, "\"low\": 0.15", "\"low\": 1e999", "invalid JSON at byte"},
      {true, "\"low\": 0.15", "\"low\": 0,15", "invalid JSON at byte"},
      {false, "\"name\": \"T4\"", "\"name\": \"T4", "invalid JSON at byte"},
      {false, "\"name\": \"T4\"", "\"name\": \"\xff\xfe\"", "invalid JSON at byte"},
  };
  EXPECT_GE(kTable.size(), 60u);
  const std::string folder = testing::TempDir() + "/";
  for (const Broken& b : kTable) {
    const std::string file = folder + (b.prices ? "my_prices.json" : "my_hardware.json");
    write_file(file, changed(b.prices ? prices : hardware, b.from, b.to));
    const Thrown t =
        thrown_by([&] { b.prices ? Catalog::load("", file) : Catalog::load(file, ""); });
    EXPECT_EQ(t.kind, ErrorKind::Format) << b.to << "\n" << t.text;
    EXPECT_EQ(t.text.rfind(file, 0), 0u) << t.text;  // the file comes first
    EXPECT_NE(t.text.find(b.wanted), std::string::npos)
        << "of " << b.to << "\nwanted " << b.wanted << "\ncame " << t.text;
    EXPECT_LT(t.text.size(), 1200u) << t.text;
    for (char c : t.text) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20) << t.text;
  }
}

TEST(CatalogMustFail, WholeFiles) {
  const std::string good = data_file("prices.json");
  const std::string file = testing::TempDir() + "/my_prices.json";
  std::string deep, many = "[";
  for (int k = 0; k < 100000; ++k) deep += "[";
  for (int k = 0; k < 300000; ++k) many += "1,";
  std::string rows;
  const std::string one = row(good, "{\"gpu\": \"T4\"");
  for (int k = 0; k < 1001; ++k) rows += one + ",\n";
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"", "invalid JSON at byte 1"},
           {"   \n", "invalid JSON at byte"},
           {"[]", "is a list of 0, expected an object"},
           {"null", "is null, expected an object"},
           {"\"prices\"", "is the text \"prices\", expected an object"},
           {"{}", "'schema' is missing"},
           {"schema: 2\ngpus: []\n", "invalid JSON at byte 1"},
           {deep, "nested deeper than 16 levels"},
           {many + "1]", "it holds too many values"},
           {changed(good, one, rows + one),
            "'gpus' is a list of 1021, expected a list of 0 to 1000"},
           {std::string("\0\0\0\0", 4), "invalid JSON at byte 1"}}) {
    write_file(file, text);
    EXPECT_ERROR(Format, wanted, Catalog::load("", file));
    EXPECT_ERROR(Format, file, Catalog::load("", file));
  }
  // Truncated anywhere: rejected, with no other effect.
  for (size_t n = 1; n < good.size() - 2; n += good.size() / 97) {
    write_file(file, good.substr(0, n));
    EXPECT_ERROR(Format, file + ": ", Catalog::load("", file));
  }
  // What is not a file, and what is far too large.
  EXPECT_ERROR(Io, "no_such.json", Catalog::load("", "no_such.json"));
  EXPECT_ERROR(Io, testing::TempDir(), Catalog::load("", testing::TempDir()));
  write_file(file, std::string((size_t{1} << 24) + 1, ' '));
  EXPECT_ERROR(Io, file, Catalog::load("", file));
}

TEST(CatalogMustFail, Profiles) {
  MachineProfile m;
  m.cpu = "a processor";
  m.date = "2026-01-01";
  m.threads = 2;
  m.f32_flops = 1e11;
  m.bandwidth = 2e10;
  m.points = {{"compiled float32 conv", 1e9, 1e6, {10, 20, 30}, 1e-3}};
  const std::string text = to_json(m).dump();
  EXPECT_EQ(to_json(machine_profile(io::parse_json(text, "p"), "p")).dump(), text);
  for (const auto& [from, to, wanted] : std::vector<std::array<const char*, 3>>{
           {"\"schema\":2", "\"schema\":1", "p: 'schema' is 1, expected 2"},
           {"\"schema\":2", "\"schema\":1", "run `tandem bench --machine` again"},
           {"\"bandwidth\":2", "\"bandwidth\":-2", "'bandwidth' is -2"},
           {"\"f32_flops\":1", "\"f32_flops\":0, \"x\":1",
            "'f32_flops' is 0, expected a number above 0"},
           {"[10,", "[-10,", "p: points[0]: 'sizes'[0] is -10"},
           {"[10,", "[", "'sizes' is a list of 2, expected a list of 3"},
           {"\"threads\":2", "\"threads\":\"two\"",
            "'threads' is the text \"two\", expected a whole"},
           {"\"threads\":2", "\"threads\":0", "'threads' is 0, expected a whole number from 1"},
           {"\"seconds\":0.001", "\"seconds\":0", "points[0]: 'seconds' is 0, expected"}}) {
    const io::Json broken = io::parse_json(changed(text, from, to), "p");
    EXPECT_ERROR(Format, wanted, machine_profile(broken, "p"));
  }
}

}  // namespace
}  // namespace tandem::plan
