// SPDX-License-Identifier: Apache-2.0
// How much of the library the golden data cover: how many cases run each op row, and whether
// every layer, loss, optimizer and schedule of the reference pages has a case with its gradients.
// A pointwise row without cases is compared with its own expression, evaluated by calling ops that
// have them.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tandem/graph/apply.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"
#include "tests/support/init.h"

namespace tandem::golden {
namespace {

// The rows that a case runs, forward and backward.
struct RowsOfCase : OpHook {
  std::set<std::string> rows;
  void before(const OpDef& op, std::span<const Tensor>) override { rows.insert(op.name); }
};

using Names = std::set<std::string>;

// f(case, its rows) for every case of a file.
template <class F>
void each_case(const char* family, void (*check)(Case), F&& f) {
  for (const Case& c : cases_of(family)) {
    RowsOfCase seen;
    {
      HookGuard guard(seen);
      check(c);
    }
    f(c, seen.rows);
  }
}

std::map<std::string, int> cases_per_row() {
  std::map<std::string, int> count;
  auto run = [&](const char* family, void (*check)(Case)) {
    each_case(family, check, [&](const Case&, const Names& rows) {
      for (const std::string& row : rows) ++count[row];
    });
  };
  for (const char* family :
       {"pointwise", "contraction", "pool", "reduce", "view_index", "norm_loss", "linalg", "search",
        "image", "fft", "distributions", "special", "names", "jax"})
    run(family, check_op_case);
  run("layers", check_layers_case);
  run("nn", check_nn_case);
  run("image_layers", check_image_layer_case);
  run("optim", check_optim_case);
  return count;
}

// Rows with fewer than three cases, and why.
struct Few {
  const char *row, *why;
};
constexpr Few kFew[] = {
    {"dynamic_slice", "narrow whose start is a tensor: tests/ops/index_test.cpp"},
    {"dropout_backward", "the derivative of a draw"},
    {"matmul_integer", "PyTorch has no such row; sums are exact: tests/backend/integer_test.cpp"},
    {"conv_integer", "PyTorch has no such row; sums are exact: tests/backend/integer_test.cpp"},
    {"matmul_nbits", "PyTorch has no such row: tests/ops/nbits_test.cpp compares it with numbers"},
    {"quantize_linear",
     "PyTorch rounds x * (1 / scale): ONNX's suite, tests/ops/quantize_test.cpp"},
    {"dequantize_linear", "as quantize_linear"},
    {"fake_quantize", "as quantize_linear"},
    {"dynamic_quantize_linear", "as quantize_linear"},
    {"paged_attention",
     "PyTorch has no such row: tests/ops/paged_attention_test.cpp compares it with attention"},
    {"to_device", "golden data were made on one device: tests/backend/devices_test.cpp"},
};

// The row that does what an instruction of an expression does.
std::string row_of(ScalarOp op) {
  static const std::map<std::string, std::string> kOtherNames = {
      {"select", "where"},        {"max", "maximum"},           {"min", "minimum"},
      {"bit_not", "bitwise_not"}, {"bit_and", "bitwise_and"},   {"bit_or", "bitwise_or"},
      {"bit_xor", "bitwise_xor"}, {"floor_div", "floor_divide"}};
  const auto at = kOtherNames.find(to_string(op));
  return at == kOtherNames.end() ? to_string(op) : at->second;
}

using Count = std::map<std::string, int>;
bool has_cases(const Count& count, const std::string& row) {
  const auto at = count.find(row);
  return at != count.end() && at->second >= 3;
}

// The outputs of a row's expression on `in`, one call of an op per instruction. Fails when an
// instruction has no op with three golden cases.
::testing::AssertionResult composed(const OpDef& op, const Count& count, const Ts& in, Ts& out) {
  const ScalarGraph& graph = expr_of(op);
  Ts value(graph.nodes.size());
  for (size_t k = 0; k < value.size(); ++k) {
    const ScalarNode& n = graph.nodes[k];
    if (n.op == ScalarOp::input) {
      value[k] = in[static_cast<size_t>(n.input)];
      continue;
    }
    if (n.op == ScalarOp::constant) {
      value[k] = full({}, n.imm, in[0].dtype());
      continue;
    }
    const std::string name = row_of(n.op);
    const OpDef* row = find_op(name);
    if (!row || !has_cases(count, name))
      return ::testing::AssertionFailure()
             << "its expression uses " << name << ", which has fewer than three golden cases";
    const auto at = [&](int32_t id) { return Operand(value[static_cast<size_t>(id)]); };
    std::vector<Operand> operands;
    for (const int32_t id : {n.a, n.b, n.c})
      if (id >= 0) operands.push_back(at(id));
    Tensor y[kMaxOpOuts];
    apply(*row, nullptr, operands, y, SourceLocation::here());
    value[k] = y[0];
  }
  for (const int id : graph.outputs) out.push_back(value[static_cast<size_t>(id)]);
  return ::testing::AssertionSuccess();
}

// Three generated cases, of f64, f32 and special values: the row gives what its composition gives.
::testing::AssertionResult equals_its_composition(const OpDef& op, const Count& count) {
  if (op.family != Family::pointwise || !op.expr_fn)
    return ::testing::AssertionFailure() << "it has no expression";
  if (op.types != Types::floating && op.types != Types::arith)
    return ::testing::AssertionFailure() << "it is not an op of floating-point numbers";
  const Tensor special = tensor({0.0, -0.0, 1.0, -1.0, 0.5, 88.0, -88.0, 1e-8, -2.5});
  for (int kind = 0; kind < 3; ++kind) {
    Ts in;
    for (int i = 0; i < op.n_in; ++i) {
      const Tensor x = uniform({3, 5}, 0.1, 0.9) - 0.05 * i;  // f32: exact in both precisions
      in.push_back(kind == 2 ? special.to(float64) : x.to(float64));
    }
    Ts want;
    const auto made = composed(op, count, in, want);
    if (!made) return made;
    Ts given;
    for (const Tensor& x : in) given.push_back(kind == 1 ? x.to(float32) : x);
    std::vector<Operand> operands;
    for (const Tensor& x : given) operands.emplace_back(x);
    Tensor got[kMaxOpOuts];
    apply(op, nullptr, operands, got, SourceLocation::here());
    for (size_t o = 0; o < want.size(); ++o) {
      const double rtol = kind == 1 ? 1e-4 : 1e-12;
      const auto same = matches(got[o].to(float64), want[o], rtol, kind == 1 ? 1e-6 : 1e-300);
      if (!same) return same;
    }
  }
  return ::testing::AssertionSuccess();
}

// The row of docs/adding-an-op.md, and rows that composition cannot vouch for.
void squareplus_expr(const E* in, E* out) { out[0] = 0.5 * (in[0] + sqrt(in[0] * in[0] + 4)); }
constinit const OpDef squareplus_row =
    make_row("squareplus_probe", Family::pointwise, Types::floating, {"x"}, nullptr)
        .expr(squareplus_expr)
        .doc("(x + sqrt(x^2 + 4)) / 2.");

TEST(Coverage, ExpressionsOfCoveredRowsNeedNoCases) {
  if (!find_op(squareplus_row.name)) register_op(squareplus_row);
  Count count{{"add", 3}, {"mul", 3}, {"sqrt", 3}};
  EXPECT_TRUE(equals_its_composition(squareplus_row, count));
  count["sqrt"] = 2;
  EXPECT_FALSE(equals_its_composition(squareplus_row, count));
  EXPECT_FALSE(equals_its_composition(*find_op("matmul"), count));
}

TEST(Coverage, EveryRowHasThreeCases) {
  const Count count = cases_per_row();
  for (const OpDef* op : all_ops()) {
    // PyTorch's generators give other numbers; control rows are the graph's own.
    if (op->has(kRandom) || op->family == Family::control) continue;
    const auto at = count.find(op->name);
    const int n = at == count.end() ? 0 : at->second;
    const bool few = std::any_of(std::begin(kFew), std::end(kFew),
                                 [&](const Few& f) { return std::string(op->name) == f.row; });
    if (!few && n < 3) {
      EXPECT_TRUE(equals_its_composition(*op, count))
          << op->name << " has " << n << " golden cases";
      continue;
    }
    EXPECT_TRUE(few ? n < 3 : n >= 3) << op->name << " has " << n << " golden cases";
  }
  for (const Few& f : kFew) EXPECT_NE(find_op(f.row), nullptr) << f.row;
}

// The classes in the first tables of a reference page: "| `Name` | `Name(...)...` | text |".
std::set<std::string> classes_of(const std::string& page) {
  std::ifstream in(page);
  EXPECT_TRUE(in) << page;
  std::set<std::string> names;
  const std::regex row("^\\| `(\\w+)` \\| `(\\w+)\\(.*");
  std::smatch m;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, m, row) && m[1] == m[2]) names.insert(m[1]);
  return names;
}

// Whether a case holds gradients, or an optimizer's parameters (a schedule's rates) after 20 steps.
bool has_gradients(const Case& c) {
  for (const Tensor& g : c.list_of("grads"))
    if (g.defined()) return true;
  const io::Json* of = c.json().find("param_grads");
  return of && of->as_object()->size() > 0;
}
bool has_steps(const Case& c) {
  if (c.json().find("base_lr") || c.op == "LBFGS" || c.op == "AveragedModel") return true;
  const io::Json* after = c.json().find("after");
  return after && after->find("20");
}

std::set<std::string> ops_of(std::initializer_list<const char*> families,
                             bool (*complete)(const Case&)) {
  std::set<std::string> names;
  for (const char* family : families)
    for (const Case& c : cases_of(family))
      if (complete(c)) names.insert(c.op);
  return names;
}

// {class, the `op` of its cases} where the names differ; "" and why there is none.
struct Other {
  const char *name, *op, *why;
};
constexpr Other kOther[] = {
    {"BCELoss", "binary_cross_entropy", ""},
    {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits", ""},
    {"CTCLoss", "ctc_loss", ""},
    {"CosineEmbeddingLoss", "cosine_embedding_loss", ""},
    {"CrossEntropyLoss", "cross_entropy", ""},
    {"DiceLoss", "dice_loss", ""},
    {"FocalLoss", "sigmoid_focal_loss", ""},
    {"GaussianNLLLoss", "gaussian_nll_loss", ""},
    {"HingeEmbeddingLoss", "hinge_embedding_loss", ""},
    {"HuberLoss", "huber_loss", ""},
    {"KLDivLoss", "kl_div", ""},
    {"L1Loss", "l1_loss", ""},
    {"LogCoshLoss", "log_cosh_loss", ""},
    {"MSELoss", "mse_loss", ""},
    {"MarginRankingLoss", "margin_ranking_loss", ""},
    {"MultiLabelMarginLoss", "multilabel_margin_loss", ""},
    {"MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", ""},
    {"MultiMarginLoss", "multi_margin_loss", ""},
    {"NLLLoss", "nll_loss", ""},
    {"PoissonNLLLoss", "poisson_nll_loss", ""},
    {"SmoothL1Loss", "smooth_l1_loss", ""},
    {"SoftMarginLoss", "soft_margin_loss", ""},
    {"TripletMarginLoss", "triplet_margin_loss", ""},
    {"TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss", ""},
    {"TverskyLoss", "tversky_loss", ""},
    {"RotaryEmbedding", "Rotary", ""},
    {"SinusoidalPositional", "Sinusoidal", ""},
    {"WeightNorm", "weight_norm", ""},
    {"SpectralNorm", "spectral_norm", ""},
    {"TransformerEncoder", "Transformer", ""},
    {"TransformerDecoder", "Transformer", ""},
    {"GATv2Conv", "GATConv", ""},
    {"ConvPadding", "", "an argument"},
    {"ParamList", "", "an argument"},
    {"PerGroup", "", "an argument"},
    {"GradScaler", "", "its skips and scales: tests/compile/grad_scaler_test.cpp"},
    {"DropPath", "", "draws; tests/nn"},
    {"Dropout2d", "", "draws; tests/nn"},
    {"Dropout3d", "", "draws; tests/nn"},
    {"KVCache", "", "state of MultiheadAttention; tests/nn"},
    {"LoRALinear", "", "not in PyTorch; tests/nn"},
    {"MoE", "", "not in PyTorch; tests/nn"},
    {"ModuleDict", "", "a container"},
    {"ModuleList", "", "a container"},
    {"ParameterDict", "", "a container"},
    {"ParameterList", "", "a container"},
    {"Sequential", "", "a container"},
    {"WeightAverage", "AveragedModel", "the same averager"},
};

void expect_cases(const std::string& page, const std::set<std::string>& cases) {
  const std::set<std::string> classes = classes_of(page);
  EXPECT_GT(classes.size(), 20u);
  for (const std::string& name : classes) {
    std::string op = name;
    for (const Other& o : kOther)
      if (name == o.name) op = o.op;
    EXPECT_TRUE(op.empty() || cases.count(op)) << name << " of " << page;
  }
}

TEST(Coverage, EveryLayerAndLossHasGradients) {
  expect_cases("docs/layers.md",
               ops_of({"layers", "nn", "image_layers", "norm_loss"}, has_gradients));
}
TEST(Coverage, EveryOptimizerAndScheduleRunsTwentySteps) {
  std::set<std::string> cases = ops_of({"optim"}, has_steps);
  cases.merge(optimizers_by_hand());
  expect_cases("docs/optimizers.md", cases);
}

// Whether the CPU has more than the reference for this row.
bool has_kernel(const OpDef& op) {
  return runtime_of(op).kernels[0] || op.body_fn || op.family == Family::view ||
         op.family == Family::control || op.family == Family::create ||
         op.family == Family::pointwise || op.family == Family::reduce || op.family == Family::scan;
}

// docs/layers_cpu.txt, from which scripts/reference_pages fills the column CPU of docs/layers.md:
// for each layer the rows of its cases, forward and backward, that run by their reference loops. If
// TANDEM_WRITE_LAYERS_CPU is set, the file is written.
TEST(Coverage, LayersOnTheCpu) {
  std::map<std::string, Names> slow;
  auto look = [&](const Case& c, const Names& rows) {
    Names& of = slow[c.op];
    for (const std::string& row : rows) {
      const OpDef* op = find_op(row);
      if (op && !has_kernel(*op)) of.insert(row);
    }
  };
  each_case("layers", check_layers_case, look);
  each_case("nn", check_nn_case, look);
  each_case("image_layers", check_image_layer_case, look);
  std::string text;
  for (const auto& [layer, rows] : slow) {
    text += layer + " ";
    for (const std::string& row : rows) text += (row == *rows.begin() ? "" : ",") + row;
    text += rows.empty() ? "kernels\n" : "\n";
  }
  const std::string path = "docs/layers_cpu.txt";
  if (std::getenv("TANDEM_WRITE_LAYERS_CPU")) std::ofstream(path) << text;
  std::ifstream in(path);
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(in), {}))
      << "run this test with TANDEM_WRITE_LAYERS_CPU=1, then scripts/reference_pages";
}

}  // namespace
}  // namespace tandem::golden
