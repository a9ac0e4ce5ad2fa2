// SPDX-License-Identifier: Apache-2.0
// Typical mistakes of users, and what the error says of each, scored: half a point each for what
// was wanted, what came (with the user's own numbers and names), where (the user's line, layer,
// file or sample) and a remedy. The parts are regular expressions that name the thing itself; the
// remedy must stand in the hint where the error has one. TANDEM_SHOW_ERRORS=1 prints the texts.
#include <regex>

#include "tandem/io/csv.h"
#include "tandem/io/image.h"
#include "tandem/io/yaml.h"
#include "tandem/recipe/recipe.h"
#include "tandem/train/trainer.h"
#include "tests/io/io_helper.h"
#include "tests/must_fail/must_fail_helper.h"

namespace tandem::must_fail {
namespace {

struct Mistake {
  const char* name;
  const char *wanted, *came, *where, *remedy;
  std::function<void()> run;
  int line;
};
/// In place of `where`: the file and line of the expression.
constexpr const char* kHere = "";

/// The expression is on the line of the macro.
#define MISTAKE(name, wanted, came, where, remedy, ...)                \
  {                                                                    \
#name, wanted, came, where, remedy, [&] { __VA_ARGS__; }, __LINE__ \
  }

struct Scores {
  double sum = 0, lowest = 2;
  int count = 0;
  std::string losses;  ///< one line for each mistake below the full score
};

void score(const std::vector<Mistake>& mistakes, Scores& all) {
  const bool show = std::getenv("TANDEM_SHOW_ERRORS") != nullptr;
  for (const Mistake& m : mistakes) {
    std::string text = "nothing was thrown", hint;
    try {
      m.run();
    } catch (const Error& e) {
      text = e.what();
      hint = e.hint();
    } catch (const std::exception& e) {
      text = std::string("not an Error: ") + e.what();
    }
    const std::string here = fmt::format("mistakes_test\\.cpp:{}\\b", m.line);
    const auto found = [](const std::string& in, const std::string& pattern) {
      return std::regex_search(in, std::regex(pattern));
    };
    const std::pair<const char*, bool> parts[] = {
        {"wanted", found(text, m.wanted)},
        {"came", found(text, m.came)},
        {"where", found(text, *m.where ? std::string(m.where) : here)},
        {"remedy", found(hint.empty() ? text : hint, m.remedy)}};
    double points = 0;
    std::string lacks;
    for (const auto& [part, there] : parts) {
      points += there ? 0.5 : 0;
      if (!there) lacks += std::string(" ") + part;
    }
    if (show) fmt::print("{:24} {} {}\n", m.name, points, text);
    if (points < 2)
      all.losses += fmt::format("{}: {} points, lacks{}: {}\n", m.name, points, lacks, text);
    all.sum += points;
    all.lowest = std::min(all.lowest, points);
    ++all.count;
  }
}

struct Digits : nn::Module {
  nn::Conv2d conv{1, 4, 3};
  nn::BatchNorm2d norm{4};
  nn::Linear fc{4, 10};
  Digits() { TD_REGISTER(conv, norm, fc); }
  Tensor forward(Tensor x) { return fc(norm(conv(std::move(x))).mean({2, 3})); }
};
struct Unregistered : nn::Module {
  nn::Linear fc1{4, 3}, fc2{3, 2};
  Unregistered() { TD_REGISTER(fc1); }
};
struct Photos {
  int64_t size() const { return 100; }
  Tensor get(int64_t i) const {
    if (i == 37) throw std::runtime_error("cannot open cat37.jpg");
    return ones({2});
  }
};
struct Growing {
  int64_t size() const { return 8; }
  Tensor get(int64_t i) const { return ones({i < 5 ? 4 : i}); }
};
template <class Loader>
void read_all(Loader loader) {
  for (const auto& batch : loader) (void)batch;
}

// clang-format off
void shapes_and_dtypes(Scores& s) {
  const Tensor a = ones({2, 3}), image = ones({8, 32, 32, 3}), logits = randn({4, 10});
  const Tensor words = randn({1000, 16});
  nn::Conv2d conv(3, 16, 3);
  nn::ConvTranspose2d up(3, 16, 3);
  nn::BatchNorm2d norm(3);
  nn::GroupNorm groups(1, 3);
  nn::Embedding embedding(1000, 16);
  nn::LSTM lstm(4, 3);
  Digits net;
  net.named_modules();
  score({
    MISTAKE(matmul_sizes, "inner|columns|rows|\\b3\\b.*\\b4\\b", "\\[2, 3\\].*\\[4, 5\\]", kHere, "transpose|\\.t\\(\\)|\\.T", a.matmul(ones({4, 5}))),
    MISTAKE(broadcast, "broadcast|equal or 1|must be equal|or 1", "\\[2, 3\\].*\\[2, 4\\]", kHere, "unsqueeze|reshape|size 1|expand", a + ones({2, 4})),
    MISTAKE(cat_sizes, "dimension|equal", "\\[2, 3\\].*\\[2, 4\\]|\\[2, 4\\].*\\[2, 3\\]", kHere, "dim|dimension|stack|pad", cat({a, ones({2, 4})}, 0)),
    MISTAKE(reshape_count, "expected 8 elements", "\\[2, 3\\] \\(6\\)", kHere, "-1", a.reshape({4, 2})),
    MISTAKE(reshape_with_minus_one, "a multiple of 400 elements", "\\[8, 16, 4, 4\\] \\(2048\\)", kHere, "reshape\\(\\{-1, 256\\}\\)|flatten\\(1\\)", ones({8, 16, 4, 4}).reshape({-1, 400})),
    MISTAKE(nhwc_into_conv, "3 input channels", "\\[8, 32, 32, 3\\] \\(32\\)", kHere, "permute\\(\\{0, 3, 1, 2\\}\\)", conv(image)),
    MISTAKE(hwc_into_conv, "3 input channels", "\\[32, 32, 3\\] \\(32\\)", kHere, "permute\\(\\{2, 0, 1\\}\\)", conv(ones({32, 32, 3}))),
    MISTAKE(nhwc_into_transposed, "3 input channels", "\\[8, 32, 32, 3\\] \\(32\\)", kHere, "permute\\(\\{0, 3, 1, 2\\}\\)", up(image)),
    MISTAKE(nhwc_into_norm, "3 channels", "\\[8, 32, 32, 3\\] \\(32\\)", kHere, "permute\\(\\{0, 3, 1, 2\\}\\)", norm(image)),
    MISTAKE(nhwc_into_group_norm, "3 channels", "\\[8, 32, 32, 3\\]", kHere, "permute\\(\\{0, 3, 1, 2\\}\\)", groups(image)),
    MISTAKE(color_into_gray, "1 input channel", "\\[2, 3, 28, 28\\] \\(3\\)", "layer conv.*mistakes_test\\.cpp", "in_channels", net(ones({2, 3, 28, 28}))),
    MISTAKE(bytes_into_conv, "float32", "uint8", kHere, "\\.to\\(", conv(zeros({1, 3, 8, 8}, uint8))),
    MISTAKE(double_and_float, "float32", "float64", kHere, "\\.to\\(|float32", nn::Linear(3, 2)(ones({2, 3}, float64))),
    MISTAKE(linear_features, "3 input features", "\\[2, 5\\]", kHere, "in_features", nn::Linear(3, 2)(ones({2, 5}))),
    MISTAKE(lstm_features, "input size 4", "\\[5, 2, 3\\]", "LSTM", "input_size|permute|last dimension", lstm(ones({5, 2, 3}))),
    MISTAKE(index_range, "0 of size 2|2 entries", "index 9", kHere, "-2 to 1|0 to 1|size", a[9]),
    MISTAKE(no_such_dimension, "2 dimensions? takes -2 to 1", "dimension 2", kHere, "-2 to 1", a.transpose(0, 2)),
    MISTAKE(embedding_range, "\\[1000, 16\\].*1000", "index 1000", kHere, "0 to 999.*ids", embedding(tensor({5, 1000}))),
    MISTAKE(embedding_floats, "integer|int64", "float32", kHere, "\\.to\\(int64\\)|input, weight", tandem::embedding(ones({2}), words)),
    MISTAKE(label_range, "0 to 9.*\\[4, 10\\]", "label 10", kHere, "last layer|from 0", cross_entropy(logits, tensor({1, 2, 3, 10}))),
    MISTAKE(labels_as_floats, "int64|integer", "float32", kHere, "\\.to\\(int64\\)|probabilities", cross_entropy(logits, ones({4}))),
    MISTAKE(swapped_loss, "target|labels", "\\[4, 10\\].*\\[4\\]|\\[4\\].*\\[4, 10\\]", kHere, "order|input, target|\\(x, target\\)|swap", cross_entropy(zeros({4}, int64), logits)),
    MISTAKE(mse_shapes, "shape|broadcast", "\\[4, 1\\].*\\[4\\]", kHere, "squeeze|unsqueeze|[Rr]eshape", mse_loss(ones({4, 1}), ones({4}))),
  }, s);
}

void modules_and_training(Scores& s) {
  Digits net;
  net.named_modules();
  const Tensor x = ones({3}).requires_grad_();
  Tensor used = (x * x).sum();
  used.backward();
  StateDict misspelt = net.state_dict(), wrapped, shapes = net.state_dict();
  misspelt["fc.weigth"] = misspelt.at("fc.weight");
  misspelt["conv.bais"] = misspelt.at("conv.bias");
  misspelt.erase("fc.weight");
  misspelt.erase("conv.bias");
  for (const auto& [name, value] : net.state_dict()) wrapped["module." + name] = value;
  shapes["fc.weight"] = ones({100, 4});
  shapes["fc.bias"] = ones({100});
  nn::Linear other(7, 7);
  other.named_modules();
  optim::AdamW opt(net.parameters()), for_other(other.parameters());
  optim::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  const auto batches = [] { return data::pipeline(data::Digits(), {.seed = 1}).take(64).batch(32); };
  nn::Linear model(64, 10);
  model.named_modules();
  optim::SGD fit(model.parameters(), {.lr = 0.1});
  const auto trained = [&](auto step) { train::Trainer(model, step, fit, {.max_epochs = 1, .progress = false}).fit(batches()); };
  const auto pair = [&](train::UpdateStep step) { train::Trainer(model, std::move(step), {{"critic", fit}}, {.max_epochs = 1, .progress = false}).fit(batches()); };
  score({
    MISTAKE(backward_of_vector, "one element", "\\[3\\]", kHere, "sum|mean", (x * 2.0).backward()),
    MISTAKE(backward_twice, "freed|second time", "sum|mul|square", kHere, "retain_graph", used.backward()),
    MISTAKE(no_gradient, "requires a gradient", "this tensor", kHere, "NoGradGuard|detach", ones({2}).sum().backward()),
    MISTAKE(unused_input, "used by the outputs|not used", "input 0", kHere, "allow_unused", grad((x * x).sum(), ones({2}).requires_grad_())),
    MISTAKE(item_of_many, "one element", "\\[3\\]", kHere, "to_vector|sum|index|\\[", x.item<float>()),
    MISTAKE(item_in_compile, "trace|read", "item", kHere, "where\\(|cond\\(|Control::eager|outside", compile([](Tensor t) { return t * t.sum().item<float>(); })(ones({3}))),
    MISTAKE(heads, "multiple of num_heads", "embed_dim = 10.*num_heads = 3", "MultiheadAttention|embed_dim", "num_heads = 2 or 5", nn::MultiheadAttention(10, 3)),
    MISTAKE(groups, "divide", "groups = 4.*in_channels = 6", "groups", "groups = [123]\\b", nn::Conv2d(6, 8, 3, {.groups = 4})),
    MISTAKE(group_norm_groups, "divide num_channels", "5 and 32", "GroupNorm", "num_groups = 4 or 8", nn::GroupNorm(5, 32)),
    MISTAKE(not_registered, "TD_REGISTER", "fc2|Linear", "Unregistered", "Add it|TD_REGISTER", Unregistered()),
    MISTAKE(misspelt_weights, "missing \\(.*conv\\.bias.*fc\\.weight", "unexpected \\(.*(conv\\.bais|fc\\.weigth)", "Digits", "Rename|strict = false", net.load_state_dict(misspelt)),
    MISTAKE(weights_in_a_wrapper, "missing \\(conv\\.weight: there is module\\.conv\\.weight", "unexpected \\(module\\.", "Digits", "Rename|prefix", net.load_state_dict(wrapped)),
    MISTAKE(weights_of_other_sizes, "fc\\.weight is \\[10, 4\\] in the model.*fc\\.bias is \\[10\\]|fc\\.bias is \\[10\\] in the model.*fc\\.weight is \\[10, 4\\]", "\\[100, 4\\] in the file", "Digits", "options", net.load_state_dict(shapes)),
    MISTAKE(optimizer_of_another_net, "missing \\(conv\\.weight", "unexpected \\(.*weight\\.exp_avg", "AdamW", "another net", opt.load_state_dict(for_other.state_dict())),
    MISTAKE(another_optimizer, "missing \\(.*exp_avg", "momentum_buffer", "AdamW", "another optimizer", opt.load_state_dict(sgd.state_dict())),
    MISTAKE(negative_rate, "lr >= 0|lr", "-0\\.1", "SGD", ">= 0|positive", optim::SGD(net.parameters(), {.lr = -0.1})),
    MISTAKE(nothing_to_train, "parameters", "no parameters", "AdamW", "TD_REGISTER", optim::AdamW(nn::ReLU().parameters())),
    MISTAKE(norm_of_one, "more|larger", "\\[1, 4, 1, 1\\]", "BatchNorm2d|layer norm|mistakes_test", "[Ll]arger batch|eval", nn::BatchNorm2d(4)(ones({1, 4, 1, 1}))),
    MISTAKE(loss_of_a_batch, "one element", "\\[32\\]", "step", "mean\\(\\)", trained([&](const train::Batch& b) { return train::StepOutput{cross_entropy(model(b[0].flatten(1)), b[1], {.reduction = Reduction::none}), {}, {}}; })),
    MISTAKE(nan_loss, "finite|nan", "the loss is nan|the loss is inf", "[Ss]amples of the batch: [0-9]+", "learning rate", trained([&](const train::Batch& b) { return train::StepOutput{log(model(b[0].flatten(1)) - 1e6).mean(), {}, {}}; })),
    MISTAKE(unknown_optimizer, "It has critic", "'generator'", "trainer", "critic", pair([&](const train::Batch& b, train::Updates& u) { u("generator", model(b[0].flatten(1)).mean()); return train::StepOutput{}; })),
    MISTAKE(loss_handed_twice, "two losses", "'critic'", "step", "Add them", pair([&](const train::Batch& b, train::Updates& u) { const Tensor y = model(b[0].flatten(1)).mean(); u("critic", y, true); u("critic", y); return train::StepOutput{}; })),
  }, s);
}

void data_and_files(Scores& s) {
  TempFolder f;
  const auto at = [&](const char* name, const std::string& text) { write_file(f / name, text); return f / name; };
  const std::string table = at("table.csv", "a,b\n1,2\n3,four\n"), fake = at("cat.png", "not an image at all"), cut = f / "cut.safetensors";
  StateDict weights;
  weights["w"] = ones({64});
  save(weights, cut);
  write_file(cut, read_file(cut).substr(0, 100));
  const std::string recipe = at("r.yaml", "recipe: r\ndata: {type: digits}\nmodel:\n  type: mlp\n  hiden: [8]\nloss: {type: cross_entropy}\noptim: {type: adam}\ntrainer: {epochs: 1}\n");
  const auto run = [&](std::vector<std::string> change) { recipe::run_recipe(recipe::Recipe::load(recipe, change), recipe::Registry::standard(), "", false); };
  auto doubled = data::pipeline(Growing{}).map([](Tensor t) { TD_CHECK(t.size(0) == 4, Shape, "expected 4 numbers, got {}\nCut it.", t.size(0)); return t * 2.0; }).batch(2);
  score({
    MISTAKE(dataset_throws, "open cat37\\.jpg", "runtime_error", "sample 37 of Photos", "alone|get\\(", read_all(data::DataLoader(Photos{}, {.batch_size = 8, .num_workers = 2}))),
    MISTAKE(dataset_throws_in_pipeline, "open cat37\\.jpg", "runtime_error", "sample 37 of Photos", "alone|get\\(", read_all(data::pipeline(Photos{}).shuffle().batch(8))),
    MISTAKE(map_throws, "expected 4 numbers", "got 5", "map over sample 5 of", "Cut it", read_all(doubled)),
    MISTAKE(ragged, "\\[4\\]|one shape", "\\[5\\]", "sample 5 of Growing", "pad|one shape", read_all(data::DataLoader(Growing{}, {.batch_size = 8}))),
    MISTAKE(rows_and_labels, "one first size", "\\[6, 2\\].*\\[5\\]", "TensorDataset", "narrow|[Ee]ach row", data::TensorDataset(ones({6, 2}), zeros({5}))),
    MISTAKE(csv_cell, "number|float32", "four", "table\\.csv.*3.*b|table\\.csv.*b.*3", "number|Correct|quote|column", io::Csv::read(table).table(0, 2, float32)),
    MISTAKE(no_such_column, "a, b|There are", "'c'", "table\\.csv", "a, b", io::Csv::read(table).column("c", float32)),
    MISTAKE(no_file, "open|read|no such file", "nowhere\\.safetensors", "nowhere\\.safetensors", "check the path|Did you mean", load(f / "nowhere.safetensors")),
    MISTAKE(no_image, "PNG|JPEG", "not an image|cat\\.png", "cat\\.png", "PNG|JPEG", io::read_image(fake)),
    MISTAKE(file_cut_off, "bytes", "[0-9]+ bytes|cut|ends|100", "cut\\.safetensors", "again|copy|cut|complete", load(cut)),
    MISTAKE(misspelt_key, "'hidden'", "hiden", "r\\.yaml line 5", "did you mean 'hidden'", run({})),
    MISTAKE(unknown_model, "'mlp'", "'mlpp'", "r\\.yaml", "did you mean 'mlp'", run({"model={type: mlpp}"})),
    MISTAKE(wrong_type, "a number", "'fast'", "optim\\.lr", "number", run({"model={type: mlp}", "optim.lr=fast"})),
    MISTAKE(not_logged, "train/loss", "'val/acc'", "monitor", "val/accuracy|There are", run({"model={type: mlp}", "trainer.monitor=val/acc"})),
    MISTAKE(yaml_indent, "expected|expects|list|map|\\]", "line", "f\\.yaml line [12]", "\\]|close|,|expected|expects", io::parse_yaml("a: [1\nb: 2\n", "f.yaml")),
  }, s);
}
// clang-format on

TEST(MustFail, TypicalMistakesScore) {
  Scores s;
  shapes_and_dtypes(s);
  modules_and_training(s);
  data_and_files(s);
  EXPECT_GE(s.count, 40);
  EXPECT_GE(s.lowest, 1) << s.losses;
  EXPECT_GE(s.sum / s.count, 1.8) << s.losses;
  fmt::print("{} mistakes, mean {:.3f} of 2, lowest {}\n{}", s.count, s.sum / s.count, s.lowest,
             s.losses);
}

}  // namespace
}  // namespace tandem::must_fail
