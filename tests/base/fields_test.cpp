// SPDX-License-Identifier: Apache-2.0
// Options structs that declare their fields, and registries of components: what is described,
// checked and found by name.
#include "tandem/base/fields.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/registry.h"
#include "tests/support/errors.h"

namespace tandem {
namespace {

enum class Mode : uint8_t { fast, exact };
constexpr const char* field_names(Mode) { return "fast exact"; }

struct Inner {
  double decay = 0.9;
  int64_t every = 1;
  template <class V>
  void fields(V& v) {
    v("decay", decay, {.doc = "share that is kept", .at_least = 0, .below = 1});
    v("every", every, {.unit = "updates", .at_least = 1});
  }
};
struct Sample {
  double lr = 1e-3;
  float small = 0.5F;
  int32_t n = 3;
  bool on = true;
  Mode mode = Mode::exact;
  std::string how = "cos";
  std::string label = "a: b";
  std::array<double, 2> betas = {0.9, 0.999};
  std::vector<double> any = {};
  std::vector<int64_t> sizes = {1, 2};
  std::vector<std::string> names = {"x", "7"};
  std::optional<double> eps = {};
  std::optional<double> given = 0.25;
  Inner inner = {};
  std::vector<Inner> many = {};
  template <class V>
  void fields(V& v) {
    v("lr", lr, {.doc = "learning rate", .at_least = 0, .keras = 0.01});
    v("small", small, {.at_least = 0, .at_most = 1});
    v("n", n, {.unit = "steps", .above = 0});
    v("on", on);
    v("mode", mode);
    v("how", how, {.one_of = "cos linear"});
    v("label", label);
    v("betas", betas, {.at_least = 0, .below = 1, .elements = "beta1 beta2"});
    v("any", any);
    v("sizes", sizes, {.counts = counts(1, 2), .required = true});
    v("names", names);
    v("eps", eps);
    v("given", given);
    v("inner", inner, {.doc = "a | b"});
    v("many", many);
  }
};

TEST(Fields, AreDescribedInOrderWithDefaultsAndNestedParts) {
  std::string got;
  for (const FieldInfo& i : describe_fields(kFieldsType<Sample>))
    got += i.name + " " + i.kind + " " + i.fallback + "\n";
  EXPECT_EQ(got,
            "lr number 0.001\nsmall number 0.5\nn whole number 3\non flag true\n"
            "mode one of: fast, exact exact\nhow one of: cos, linear cos\nlabel text \"a: b\"\n"
            "betas 2 numbers [0.9, 0.999]\nany list of numbers []\nsizes 1 or 2 whole numbers \n"
            "names list of texts [x, \"7\"]\neps number null\ngiven number 0.25\ninner part \n"
            "inner.decay number 0.9\ninner.every whole number 1\nmany list of parts \n"
            "many[].decay number 0.9\nmany[].every whole number 1\n");
}

TEST(Fields, TextsOfHelpAndPages) {
  const std::string text = fields_text(kFieldsType<Sample>);
  EXPECT_EQ(text.substr(0, text.find("\n")), "  lr=0.001 (number, 0 or more): learning rate");
  EXPECT_NE(text.find("  sizes (1 or 2 whole numbers, required)\n"), text.npos) << text;
  EXPECT_NE(text.find("  inner.every=1 (whole number, 1 or more updates)\n"), text.npos) << text;
  const std::string page = fields_markdown(kFieldsType<Sample>);
  EXPECT_NE(page.find("| `inner` | part |  | a \\| b |\n"), page.npos) << page;
  EXPECT_NE(
      page.find("| `inner.decay` | number, a number in [0, 1) | `0.9` | share that is kept |"),
      page.npos)
      << page;
}

TEST(Fields, BoundsAreSaidAndChecked) {
  EXPECT_EQ(bounds_text({.unit = "epochs", .at_least = 1}), "1 or more epochs");
  EXPECT_EQ(bounds_text({.above = 0}), "a number above 0");
  EXPECT_EQ(bounds_text({.at_least = 0, .at_most = 1}), "a number from 0 to 1");
  EXPECT_EQ(bounds_text({.above = 0, .at_most = 1}), "a number in (0, 1]");
  EXPECT_EQ(bounds_text({.at_most = 3}), "3 or less");
  EXPECT_EQ(bounds_text({.below = 3}), "a number below 3");
  EXPECT_EQ(bounds_text({.unit = "s"}), "");
  const Field open{.above = 0, .below = 1};
  EXPECT_FALSE(in_bounds(open, 0));
  EXPECT_TRUE(in_bounds(open, 0.5));
  EXPECT_FALSE(in_bounds(open, 1));
  EXPECT_FALSE(in_bounds({.at_least = 0}, Field::kNone));  // NaN keeps no bound
  EXPECT_TRUE(in_bounds({}, Field::kNone));
  EXPECT_EQ(counts_text({.counts = counts(1)}), "1 number");
  EXPECT_EQ(counts_text({.counts = counts(0, 2, 4)}), "2 or 4 numbers");
  Sample s;
  check_fields(any_fields(s), "sample");
  s.betas[1] = 1;
  EXPECT_EQ(error_of([&] { check_fields(any_fields(s), "sample"); }),
            "Value: sample expects betas in [0, 1), got 1.");
  s = {};
  s.inner.every = 0;
  EXPECT_EQ(error_of([&] { check_fields(any_fields(s), "sample"); }),
            "Value: sample expects every >= 1, got 0.");
  s = {};
  s.how = "sin";
  EXPECT_EQ(error_of([&] { check_fields(any_fields(s), "sample"); }),
            "Value: sample expects how to be one of cos, linear, got \"sin\".");
}

TEST(Fields, KerasDefaultsTakeThePlaceOfOthers) {
  Sample s;
  set_keras_defaults(any_fields(s));
  EXPECT_EQ(s.lr, 0.01);
  EXPECT_EQ(s.small, 0.5F);
  EXPECT_EQ(s.n, 3);
}

struct Shape2 : Component {
  int corners;
};
constexpr Shape2 kShapes[] = {
    {{"square", "Four equal sides.", "{type: square}", &kFieldsType<Inner>}, 4},
    {{"circle", "No corner.", "{type: circle}"}, 0},
};

TEST(Registries, FindByNameAndNameTheNearest) {
  Registry<Shape2> r("shape", kShapes);
  EXPECT_EQ(r.at("square").corners, 4);
  EXPECT_EQ(r.find("squar"), nullptr);
  EXPECT_EQ(r.names(), (std::vector<std::string>{"square", "circle"}));
  EXPECT_EQ(error_of([&] { r.at("squar"); }),
            "Value: there is no shape 'squar', did you mean 'square'?");
  EXPECT_EQ(error_of([&] { r.at("zzzzzzzzzzzz"); }),
            "Value: there is no shape 'zzzzzzzzzzzz'. There are square, circle.");
  // Names from outside: empty, long, with bytes that are not text.
  for (const std::string& name : {std::string(), std::string(100000, 'a'), std::string("a\0b", 3),
                                  std::string("\xff\xfe{}%s")})
    EXPECT_EQ(error_of([&] { r.at(name); }).rfind("Value: there is no shape '", 0), 0u);
}

TEST(Registries, TakeRowsOfAProgram) {
  Registry<Shape2> r("shape", kShapes);
  const Shape2* first = r.find("square");
  for (int i = 0; i < 100; ++i) {
    static std::vector<std::string> names(100);
    names[static_cast<size_t>(i)] = "own" + std::to_string(i);
    r.add({{names[static_cast<size_t>(i)].c_str(), "", ""}, i});
  }
  EXPECT_EQ(r.find("square"), first);
  EXPECT_EQ(r.at("own7").corners, 7);  // rows stay where they are
  EXPECT_EQ(r.rows().size(), 102u);
  EXPECT_EQ(error_of([&] {
              r.add({{"circle", "", ""}, 1});
            }),
            "Value: the shape 'circle' is there already.");
  for (const char* bad : {"", "two words", "a/b", "a:b"})
    EXPECT_EQ(error_of([&] { r.add({{bad, "", ""}, 1}); }).rfind("Value: '", 0), 0u) << bad;
  EXPECT_EQ(r.rows().size(), 102u);
  EXPECT_NE(registry_text(r).find("square: Four equal sides.\n  example: {type: square}\n  decay="),
            std::string::npos);
  EXPECT_NE(registry_markdown(r).find("### circle\nNo corner.\n\n```yaml\n{type: circle}\n```\n"),
            std::string::npos);
}

TEST(Fields, WordsBetweenSpaces) {
  EXPECT_EQ(words_of(" a  bc "), (std::vector<std::string>{"a", "bc"}));
  EXPECT_TRUE(words_of("").empty());
}

}  // namespace
}  // namespace tandem
