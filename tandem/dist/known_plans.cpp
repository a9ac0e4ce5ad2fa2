// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/known_plans.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/nn/heads_internal.h"

namespace tandem::distributed {
namespace {

/// A layer of a block by the end of its path.
struct KnownLayer {
  const char* name;
  ParallelStyle style;
  bool optional = false;
};
/// Layers that belong together: between the columns of one and the rows of another a rank has
/// slices, so a block has all of them or none.
struct KnownBlock {
  std::vector<KnownLayer> layers;
  bool heads = false;  ///< slices are heads of the block, which must say how many it has
};

const std::vector<KnownBlock>& known_layers() {
  static const std::vector<KnownBlock> all = {
      // models::GPT
      {{{"c_attn", ColwiseParallel{.parts = 3}},
        {"c_proj", RowwiseParallel{}},
        {"c_fc", ColwiseParallel{}},
        {"mlp_proj", RowwiseParallel{}}},
       true},
      // nn::TransformerEncoderLayer, nn::TransformerDecoderLayer
      {{{"linear1", ColwiseParallel{}},
        {"linear2", RowwiseParallel{}},
        {"self_attn", AttentionParallel{}},
        {"multihead_attn", AttentionParallel{}, true}}},
      // Llama and its relatives: each rank norms heads of its own with weights that all have
      {{{"self_attn.q_proj", ColwiseParallel{}},
        {"self_attn.k_proj", ColwiseParallel{}},
        {"self_attn.v_proj", ColwiseParallel{}},
        {"self_attn.o_proj", RowwiseParallel{}},
        {"self_attn.q_norm", SequenceParallel{}, true},
        {"self_attn.k_norm", SequenceParallel{}, true}},
       true},
      {{{"mlp.gate_proj", ColwiseParallel{}},
        {"mlp.up_proj", ColwiseParallel{}},
        {"mlp.down_proj", RowwiseParallel{}}}},
      // BERT
      {{{"attention.self.query", ColwiseParallel{}},
        {"attention.self.key", ColwiseParallel{}},
        {"attention.self.value", ColwiseParallel{}},
        {"attention.output.dense", RowwiseParallel{}}},
       true},
      {{{"intermediate.dense", ColwiseParallel{}}, {"output.dense", RowwiseParallel{}}}},
  };
  return all;
}

// "h.3." of "h.3.c_attn" where that ends in `name`; nothing where it does not.
bool block_of(const std::string& path, const std::string& name, std::string& block) {
  if (!path.ends_with(name)) return false;
  block = path.substr(0, path.size() - name.size());
  return block.empty() || block.ends_with('.');
}

// A rank has whole heads, with the keys that they look at. False where the block does not say how
// many it has: what it would make of slices is not known.
bool heads_divide(const nn::Module& m, const std::string& path, int64_t ranks) {
  const std::optional<nn::detail::HeadCounts> own = nn::detail::heads_of(m);
  if (!own) return false;
  const int64_t most = std::gcd(own->heads, own->kv_heads);
  TD_CHECK(own->heads % ranks == 0 && own->kv_heads % ranks == 0, Value,
           "'{}' has {} heads of attention and {} of keys and values, which do not divide by tp = "
           "{} ranks\nSet tp to a divisor of {}{}.",
           path, own->heads, own->kv_heads, ranks, most,
           most > 1 ? "" : ": leave tensor parallel out (tp = 1)");
  return true;
}

}  // namespace

ParallelPlan known_plan(nn::Module& net, int64_t ranks) {
  std::map<std::string, nn::Module*> paths;
  for (const auto& [path, m] : net.named_modules()) paths[path] = m;
  ParallelPlan plan;
  for (const auto& [layers, heads] : known_layers())
    for (const auto& [path, m] : paths) {
      std::string block;
      if (!block_of(path, layers.front().name, block)) continue;
      const auto there = [&](const KnownLayer& l) { return paths.contains(block + l.name); };
      if (!std::all_of(layers.begin(), layers.end(),
                       [&](const KnownLayer& l) { return l.optional || there(l); }))
        continue;
      const std::string owner = block.substr(0, block.empty() ? 0 : block.size() - 1);
      if (heads && !heads_divide(*paths.at(owner), owner, ranks)) continue;
      for (const KnownLayer& l : layers)
        if (there(l)) plan.emplace_back(block + l.name, l.style);
    }
  TD_CHECK(
      !plan.empty(), Unsupported,
      "no plan is known that spreads the layers of a {} over ranks: none of its blocks has the "
      "names of GPT's, BERT's, Llama's or nn::Transformer's layers and says how many heads it has\n"
      "Leave tensor parallel out "
      "(tp = 1), or write a plan for it: distributed::parallelize_module().",
      net.type());
  return plan;
}

std::vector<std::string> known_blocks(nn::Module& net) {
  struct List {
    std::vector<std::string> paths;
    std::string type;
    int64_t parameters = 0;
    bool chain = true;
  };
  std::map<std::string, List> lists;  // by what stands before the number
  for (const auto& [path, m] : net.named_modules()) {
    const size_t dot = path.rfind('.');
    const std::string number = path.substr(dot == path.npos ? 0 : dot + 1);
    if (number.empty() ||
        !std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); }))
      continue;
    List& l = lists[path.substr(0, path.size() - number.size())];
    if (l.paths.empty()) l.type = m->type();
    l.chain &= m->type() == l.type && m->state().forward != nullptr;
    l.paths.push_back(path);
    for (const Param& p : m->parameters()) l.parameters += p.numel();
  }
  const List* best = nullptr;
  for (const auto& [before, l] : lists)
    if (l.chain && l.paths.size() > 1 && l.parameters > 0 &&
        (!best || l.parameters > best->parameters))
      best = &l;
  TD_CHECK(best, Unsupported,
           "a pipeline cuts a net between blocks, and {} has no list of equal layers that take one "
           "tensor\nLeave pipeline parallel out (pp = 1), or cut it yourself: distributed::"
           "Schedule1F1B.",
           net.type());
  return best->paths;
}

}  // namespace tandem::distributed
