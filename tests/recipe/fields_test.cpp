// SPDX-License-Identifier: Apache-2.0
// Options structs with fields out of recipes: values, defaults, the resolved recipe, and messages
// for whatever a file may hold in their place.
#include "tandem/recipe/fields.h"

#include <gtest/gtest.h>

#include "tandem/io/fields.h"
#include "tests/support/errors.h"

namespace tandem::recipe {
namespace {

enum class Mode : uint8_t { fast, exact, off };
constexpr const char* field_names(Mode) { return "fast exact off"; }

struct Inner {
  double decay = 0.9;
  int64_t every = 1;
  template <class V>
  void fields(V& v) {
    v("decay", decay, {.at_least = 0, .below = 1});
    v("every", every, {.unit = "updates", .at_least = 1});
  }
};
struct Chain;
struct Link : Component {
  static const RegistryBase& registry();
};
struct Chain {
  std::vector<Chosen<Link>> links = {};
  template <class V>
  void fields(V& v) {
    v("links", links, {.required = true});
  }
};
constexpr Link kLinks[] = {
    {{"plain", "", "{type: plain}"}},
    {{"inner", "", "{type: inner}", &kFieldsType<Inner>}},
    {{"chain", "", "{type: chain, links: [{type: plain}]}", &kFieldsType<Chain>}},
};
const RegistryBase& Link::registry() {
  static tandem::Registry<Link> all("link", std::span<const Link>(kLinks));
  return all;
}

struct Sample {
  double lr = 1e-3;
  int64_t n = 3;
  bool on = true;
  Mode mode = Mode::exact;
  std::string how = "cos";
  std::array<double, 2> betas = {0.9, 0.999};
  std::array<double, 2> degrees = {0, 0}, brightness = {1, 1}, sigma = {5, 5};
  std::vector<int64_t> sizes = {1, 2};
  std::vector<std::string> names = {"x"};
  std::optional<double> eps = {};
  std::optional<double> cut = 2.0;
  WordOrNumbers weights = {};
  Inner inner = {};
  std::vector<Inner> many = {{.decay = 0.5, .every = 2}};
  Chosen<Link> link = {};
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.at_least = 0});
    v("n", n, {.at_least = 1, .at_most = 9});
    v("on", on);
    v("mode", mode);
    v("how", how, {.one_of = "cos linear"});
    v("betas", betas, {.at_least = 0, .below = 1});
    v("degrees", degrees, {.single = Single::around_zero});
    v("brightness", brightness, {.single = Single::around_one});
    v("sigma", sigma, {.single = Single::twice});
    v("sizes", sizes, {.counts = counts(1, 2)});
    v("names", names);
    v("eps", eps, {.none = 0});
    v("cut", cut);
    v("weights", weights, {.at_least = 0, .one_of = "balanced"});
    v("inner", inner);
    v("many", many);
    v("link", link);
  }
};

const char* const kDefaults =
    "{lr: 0.001, n: 3, on: true, mode: exact, how: cos, betas: [0.9, 0.999], degrees: [0, 0], "
    "brightness: [1, 1], sigma: [5, 5], sizes: [1, 2], names: [x], eps: null, cut: 2, "
    "weights: [], inner: {decay: 0.9, every: 1}, many: [{decay: 0.5, every: 2}], link: null}";

Sample read(const std::string& text, std::string* resolved = nullptr) {
  const io::Yaml yaml = io::parse_yaml(text, "r.yaml");
  const auto out = std::make_shared<io::Yaml>();
  Options o(&yaml, "", "r.yaml", out);
  auto s = read_part<Sample>(o);
  if (resolved) *resolved = out->dump();
  return s;
}
std::string canonical(const std::string& text) { return io::parse_yaml(text).dump(); }

TEST(RecipeFields, DefaultsAreResolved) {
  std::string resolved;
  const Sample s = read("{}", &resolved);
  EXPECT_EQ(resolved, canonical(kDefaults));
  EXPECT_EQ(io::fields_yaml(any_fields(s)).dump(), canonical(kDefaults));
  // What was resolved reads back to the same.
  std::string again;
  read(resolved, &again);
  EXPECT_EQ(again, resolved);
}

TEST(RecipeFields, ValuesAreRead) {
  const Sample s = read(
      "{lr: 1e-2, n: 9, on: false, mode: fast, how: linear, betas: [0, 0.5], degrees: 10, "
      "brightness: 0.25, sigma: 3, sizes: 7, names: [], eps: 1e-6, cut: null, "
      "inner: {every: 4}, many: [{}, {decay: 0}], "
      "link: {type: chain, links: [{type: plain}, {type: inner, decay: 0.1}]}}");
  EXPECT_EQ(s.lr, 1e-2);
  EXPECT_EQ(s.n, 9);
  EXPECT_FALSE(s.on);
  EXPECT_EQ(s.mode, Mode::fast);
  EXPECT_EQ(s.how, "linear");
  EXPECT_EQ(s.betas, (std::array<double, 2>{0, 0.5}));
  EXPECT_EQ(s.degrees, (std::array<double, 2>{-10, 10}));
  EXPECT_EQ(s.brightness, (std::array<double, 2>{0.75, 1.25}));
  EXPECT_EQ(s.sigma, (std::array<double, 2>{3, 3}));
  EXPECT_EQ(s.sizes, std::vector<int64_t>{7});
  EXPECT_TRUE(s.names.empty());
  EXPECT_EQ(s.eps, 1e-6);
  EXPECT_FALSE(s.cut);
  EXPECT_EQ(s.inner.decay, 0.9);
  EXPECT_EQ(s.inner.every, 4);
  ASSERT_EQ(s.many.size(), 2u);
  EXPECT_EQ(s.many[0].decay, 0.9);  // an item's defaults are the struct's
  EXPECT_EQ(s.many[1].decay, 0.0);
  ASSERT_TRUE(s.link);
  EXPECT_STREQ(s.link->name, "chain");
  const auto& links = static_cast<const Chain*>(s.link.options.get())->links;
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(static_cast<const Inner*>(links[1].options.get())->decay, 0.1);
  EXPECT_EQ(read("{weights: balanced}").weights.word, "balanced");
  EXPECT_EQ(read("{weights: [1, 2.5]}").weights.numbers, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(read("{weights: [1, 2.5]}").weights.word, "");
  EXPECT_FALSE(read("{eps: 0}").eps);  // the number that stands for none
  EXPECT_EQ(read("{degrees: [-3, 5]}").degrees, (std::array<double, 2>{-3, 5}));
  // An optional without a value, written and read.
  EXPECT_EQ(io::component_yaml(s.link).dump(),
            "type: chain\nlinks: [{type: plain}, {type: inner, decay: 0.1, every: 1}]\n");
}

TEST(RecipeFields, MistakesAreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"lr: fast", "line 1: lr: expected a number, got 'fast'"},
      {"lr: [1]", "lr: expected a number, got ''"},
      {"lr: {a: 1}", "lr: expected a number, got ''"},
      {"lr: -1", "lr: expected 0 or more, got -1"},
      {"lr: '1'", "lr: expected a number, got '1'"},
      {"lr: 1e", "lr: expected a number, got '1e'"},
      {"on: true\n\nl: 1", "line 3: l: there is no such key, did you mean 'lr'?"},
      {"n: 0", "n: expected a number from 1 to 9, got 0"},
      {"n: 1.5", "n: expected a whole number, got '1.5'"},
      {"n: 1e300", "n: expected a whole number below 9e15, got '1e300'"},
      {"on: yes", "on: expected true or false, got 'yes'"},
      {"mode: fats", "mode: expected fast, exact or off, got 'fats', did you mean 'fast'?"},
      {"mode: [fast]", "mode: expected a text"},
      {"how: sine", "how: expected cos or linear, got 'sine'"},
      {"betas: [0.9]", "betas: expected 2 numbers, got 1"},
      {"betas: 0.9", "betas: expected 2 numbers, got 1"},
      {"betas: [0.9, 1]", "betas: expected a number in [0, 1), got 1"},
      {"betas: [0.9, x]", "betas: expected numbers, got 'x'"},
      {"betas: {}", "betas: expected a list of numbers"},
      {"sizes: [1, 2, 3]", "sizes: expected 1 or 2 numbers, got 3"},
      {"sizes: [1.5]", "sizes: expected whole numbers, got 1.5"},
      {"sizes: [1e300]", "sizes: expected whole numbers, got 1e+300"},
      {"names: x", "names: expected a list"},
      {"eps: small", "eps: expected a number, got 'small'"},
      {"weights: balance", "weights: expected balanced, got 'balance', did you mean 'balanced'?"},
      {"weights: [1, -2]", "weights: expected 0 or more, got -2"},
      {"weights: [balanced]", "weights: expected numbers, got 'balanced'"},
      {"weights: 2", "weights: expected a list such as [2], got 2"},
      {"inner: 3", "'inner' expects a map"},
      {"inner: {decay: 1}", "inner.decay: expected a number in [0, 1), got 1"},
      {"inner: {evry: 1}", "inner.evry: there is no such key, did you mean 'every'?"},
      {"many: {decay: 1}", "many: expected a list of maps"},
      {"many: [{decay: 0.5}, {every: 0}]", "many.1.every: expected 1 or more updates, got 0"},
      {"many: [7]", "'many.0' expects a map"},
      {"link: plain", "'link' expects a map"},
      {"link: {}", "link.type: is missing"},
      {"link: {typ: plain}", "link.typ: there is no such key, did you mean 'type'?"},
      {"link: {type: plane}", "link.type: there is no link 'plane', did you mean 'plain'?"},
      {"link: {type: qqqqqqqqqqqq}", "There are plain, inner, chain"},
      {"link: {type: plain, decay: 1}", "link.decay: there is no such key"},
      {"link: {type: chain}", "link.links: is missing"},
      {"link: {type: chain, links: []}", "link.links: expected at least one link"},
      {"link: {type: chain, links: [{type: inner, decay: 2}]}",
       "link.links.0.decay: expected a number in [0, 1), got 2"},
  };
  for (const auto& [text, want] : kCases) {
    const std::string what = error_of([&, text = text] { read(text); });
    EXPECT_EQ(what.rfind("Value: r.yaml", 0), 0u) << what;
    EXPECT_NE(what.find(want), what.npos) << what;
  }
  // A long chain within chains ends at the parser's limit, not at the stack's.
  std::string deep = "{type: plain}";
  for (int i = 0; i < 200; ++i) deep = "{type: chain, links: [" + deep + "]}";
  EXPECT_EQ(error_of([&] { read("link: " + deep); }).rfind("Format: ", 0), 0u);
}

TEST(RecipeFields, SchemaIsJson) {
  const io::Json j = io::fields_schema(kFieldsType<Sample>);
  const std::string text = j.dump();
  EXPECT_NE(text.find(R"({"name":"n","kind":"whole number","default":3,"at_least":1,"at_most":9})"),
            text.npos)
      << text;
  EXPECT_NE(text.find(R"("default":"exact","one_of":["fast","exact","off"]})"), text.npos) << text;
  EXPECT_NE(text.find(R"({"name":"eps","kind":"number","default":null})"), text.npos) << text;
  EXPECT_EQ(io::to_json(io::parse_yaml("{a: 1, b: 2.5, c: '3', d: [true, null], e: x}")).dump(),
            R"({"a":1,"b":2.5,"c":"3","d":[true,null],"e":"x"})");
  EXPECT_NE(io::registry_schema(Link::registry()).dump().find(R"("name":"plain","doc":"")"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::recipe
