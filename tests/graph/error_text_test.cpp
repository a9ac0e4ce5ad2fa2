// SPDX-License-Identifier: Apache-2.0
// The texts of errors that kernels report: every row's names what the row has, and the facts of the
// call stand in it, in eager code and in compiled programs.
#include "tandem/graph/error_text.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tandem/graph/op_def.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

/// The names of an attrs struct.
struct AttrNames final : AttrVisitor {
  std::set<std::string> names;
  void operator()(const char* n, int64_t&) override { names.insert(n); }
  void operator()(const char*, double&) override {}
  void operator()(const char*, bool&) override {}
  void operator()(const char*, DType&) override {}
  void operator()(const char*, std::string&) override {}
  void operator()(const char*, IntList&) override {}
  void operator()(const char*, Scalar&) override {}
  void operator()(const char*, std::vector<int64_t>&) override {}
  void operator()(const char*, Ref<RefCounted>&) override {}
};

TEST(ErrorText, RowsNameWhatTheyHave) {
  size_t texts = 0, facts = 0;
  std::map<std::pair<std::string, std::string>, bool> known;  // of a text and a name in it
  for (const OpDef* op : all_ops()) {
    std::set<std::string> inputs;
    for (int i = 0; i < op->n_in; ++i) {
      std::string name = op->in_names[i];
      if (std::string_view("?*$").find(name.back()) != std::string_view::npos) name.pop_back();
      inputs.insert(name);
    }
    AttrNames attrs;
    if (op->attrs) {
      void* made = op->attrs->make();
      op->attrs->visit(made, attrs);
      op->attrs->destroy(made);
    }
    for (const char* text : op->error_texts) {
      if (!text) continue;
      ++texts;
      const std::string s = text;
      EXPECT_EQ(count(s, "<"), count(s, ">")) << op->name;
      // Without the facts, it is still a text.
      const std::string bare = fill_error_text(text, 7, KernelCall{*op});
      EXPECT_EQ(bare.find_first_of("<>{}"), std::string::npos) << op->name << ": " << bare;
      for (size_t at = s.find('{'); at != s.npos; at = s.find('{', at + 1)) {
        const std::string name = s.substr(at + 1, s.find('}', at) - at - 1);
        if (name.empty()) continue;
        ++facts;
        const std::string of = name.substr(0, name.find('.'));
        bool& there = known[{s, name}];  // rows may share a text, and leave out what they lack
        there |= inputs.count(of) || (of == name && attrs.names.count(of));
        EXPECT_LT(s.rfind('<', at), at) << op->name << ": a fact outside of <>";
      }
    }
  }
  for (const auto& [what, there] : known)
    EXPECT_TRUE(there) << "no row has '" << what.second << "': " << what.first;
  EXPECT_GE(texts, 30u);
  EXPECT_GE(facts, 40u);
}

TEST(ErrorText, HasTheFactsOfTheCall) {
  const Tensor words = randn({1000, 16}), x = randn({4, 10});
  struct Case {
    std::function<void()> run;
    const char* text;
  };
  auto look = compile([&](Tensor ids, Tensor table) { return embedding(ids, table); });
  auto loss = compile([](Tensor logits, Tensor y) { return cross_entropy(logits, y); });
  const Case cases[] = {
      {[&] { embedding(tensor({1000}), words); },
       "index 1000 is out of range for x [1000, 16], which has 1000 entries in dimension 0"},
      {[&] { look(tensor({1000}), words); },
       "index 1000 is out of range for x [1000, 16], which has 1000 entries in dimension 0"},
      {[&] { index_select(x, 1, tensor({12})); },
       "index 12 is out of range for x [4, 10], which has 10 entries in dimension 1"},
      {[&] {
         x.gather(-1, zeros({4, 1}, int64) + 11);
       },
       "Use indices from 0 to 9"},
      {[&] {
         index(x, {tensor({0}), tensor({99})});
       },
       "index 99 is out of range for x [4, 10]. "},
      {[&] {
         cross_entropy(x, tensor({0, 1, 2, 10}));
       },
       "from 0 to 9, since x is [4, 10]"},
      {[&] {
         loss(x, tensor({0, 1, 2, 10}));
       },
       "from 0 to 9, since x is [4, 10]"},
      {[&] { one_hot(tensor({5}), 3); }, "index 5 is out of range: num_classes is 3"},
      {[&] {
         scatter_reduce(x, 1, full({4, 10}, 70), x, "amax");
       },
       "which has 10 entries in dimension 1"},
  };
  for (const Case& c : cases) {
    const std::string got = thrown(c.run);
    EXPECT_TRUE(has(got, c.text)) << c.text << ": " << got;
  }
}

}  // namespace
}  // namespace tandem
