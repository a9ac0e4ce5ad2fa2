// SPDX-License-Identifier: Apache-2.0
// Runs trained, evaluated and asked from C++: for data of each kind a Predictor gives the outputs
// of evaluate() to the bit, and the lines that `tandem predict` prints.
#include "tandem/recipe/predictor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/graph/backend.h"
#include "tandem/recipe/generate.h"
#include "tandem/recipe/sample_model.h"
#include "tandem/recipe/train.h"
#include "tandem/tandem.h"
#include "tests/cli/tool_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::recipe {
namespace {

namespace fs = std::filesystem;

const char* const kLoss = "loss: {type: cross_entropy}\n";

class Predicting : public ::testing::Test {
 protected:
  static std::string at(const std::string& name) { return folder_ / name; }
  // A run of three steps.
  static std::string trained(const std::string& name, const std::string& data,
                             const std::string& model, const std::string& loss = kLoss) {
    write_file(at("recipe.yaml"),
               "recipe: r\nseed: 0\ndata: " + data + "\nmodel: " + model + "\n" + loss +
                   "optim: {type: sgd, lr: 0.01}\ntrainer: {max_steps: 3, report: false, "
                   "metrics: []}\n");
    const RecipeRun run =
        train(Recipe::load(at("recipe.yaml")), {.folder = at(name), .progress = false});
    EXPECT_EQ(run.fit.steps, 3) << name;
    EXPECT_EQ(run.folder, at(name));
    return run.folder;
  }
  // What the model gives for each batch of the test set; batches of one unless said otherwise.
  static std::vector<Tensor> evaluated(const std::string& run, const std::string& change = "") {
    std::vector<Tensor> out;
    EvaluateOptions options;
    if (!change.empty()) options.overrides = {change};
    options.outputs = [&](const Tensor& y) { out.push_back(y.clone()); };
    evaluate(run, options);
    return out;
  }
  static void same(const Prediction& p, const Tensor& want) {
    const Tensor& got = p.outputs.at(0).second;
    ASSERT_EQ(got.shape().to_string(), want.shape().to_string());
    EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
  }
  static void printed(const std::string& run, const std::string& more, const Prediction& p,
                      int64_t top = 0) {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    const cli_test::Result r = cli_test::tool("predict " + run + " " + more + " 2>/dev/null");
    EXPECT_EQ(r.code, 0) << more;
    EXPECT_EQ(r.text, p.to_string(top)) << more;
  }
  // The model with its preparation gives the same for a decoded sample, and nearly so compiled.
  static void from_sample(const std::string& run, const Tensor& sample, const Tensor& want,
                          const std::string& shapes = "") {
    const NoGradGuard no_grad;
    const SampleModel s = with_preparation(load_run(run), shapes);
    EXPECT_EQ(Shape(s.form.shape).to_string(), sample.shape().to_string());
    EXPECT_EQ(s.form.dtype, sample.dtype());
    EXPECT_TRUE(allclose(s.model.run({sample}).at(0), want, 1e-6, 1e-6));
    auto compiled = compile([&](const Tensor& x) { return s.model.run({x}).at(0); });
    EXPECT_TRUE(allclose(compiled(sample), want, 1e-5, 1e-5));
  }
  // A folder of TANDEM_DATA; empty: it is not there.
  static std::string data_folder(const char* name) {
    const char* all = std::getenv("TANDEM_DATA");
    const std::string path = std::string(all ? all : "") + "/" + name;
    return all && fs::exists(path) ? path : "";
  }
  // On every other device that is there: what `ask` gives of the run is near that of the host, and
  // the device runs all of it.
  template <class F>
  static void on_devices(const std::string& run, F ask) {
    Predictor host(run, {.score = 0.001});
    const Prediction want = ask(host);
    for (const char* name : {"fake:0", "opencl:0"}) {
      Device device;
      try {
        device = device_named(name);
      } catch (const Error&) {
        continue;  // tests/gpu says why there is none
      }
      Predictor there(run, {.score = 0.001, .device = device});
      reset_host_runs();
      const Prediction got = ask(there);
      const HostRuns runs = host_runs();
      EXPECT_EQ(runs.calls, 0) << (runs.calls ? runs.by_op[0].first : "") << " ran on the host";
      EXPECT_EQ(got.kind, want.kind);
      const Tensor &x = got.outputs.at(0).second, &y = want.outputs.at(0).second;
      EXPECT_EQ(x.device(), cpu);
      EXPECT_TRUE(allclose(x, y, 1e-4, 1e-4)) << name;
    }
  }
  static inline TempFolder folder_;
};

TEST_F(Predicting, AnImage) {
  // Digits are sixteenths, a file has bytes: a chain begins with bytes in both cases.
  const std::string run =
      trained("image", "{type: digits, test_transforms: [{type: RandomHorizontalFlip, p: 0}]}",
              "{type: mlp, hidden: [8]}");
  const Tensor digit = round(data::Digits({.train = false}).get(4).x * 255.0).to(DType::u8);
  write_file(at("digit.png"), io::encode_png(digit));
  Predictor predictor(run);
  const Prediction p = predictor.file(at("digit.png"));
  same(p, evaluated(run, "data.eval_batch=1").at(4));
  EXPECT_EQ(p.kind, PredictionKind::classes);
  ASSERT_EQ(p.classes.size(), 1u);
  ASSERT_EQ(p.classes[0].size(), 10u);
  double sum = 0;
  for (size_t i = 0; i < 10; ++i) {
    sum += p.classes[0][i].score;
    EXPECT_EQ(p.classes[0][i].label, std::to_string(p.classes[0][i].index));
    if (i > 0) {
      EXPECT_LE(p.classes[0][i].score, p.classes[0][i - 1].score);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  printed(run, "--input " + at("digit.png"), p);
  printed(run, "--top 2 --input " + at("digit.png"), p, 2);
  on_devices(run, [](Predictor& q) { return q.file(at("digit.png")); });
  from_sample(run, digit, p.outputs.at(0).second);
  // Of memory, and as an array.
  EXPECT_EQ(predictor.image(digit).to_string(), p.to_string());
  EXPECT_EQ(predictor.arrays({digit.to(DType::f32) / 255.0}).to_string(), p.to_string());
  EXPECT_NE(error_of([&] { predictor.bytes("no image", "a.txt"); }).find("'a.txt' is not a JPEG"),
            std::string::npos);
}

TEST_F(Predicting, ATextWithClasses) {
  std::string lines;
  for (int i = 0; i < 24; ++i)
    lines += i % 2 ? "place:city Where is the river ?\n" : "person:name Who wrote this book ?\n";
  write_file(at("train"), lines);
  write_file(at("test"), "person:name Who is unknown here ?\nplace:city Where ?\n");
  const std::string data = "{type: sentences, root: " + folder_.path().string() +
                           ", train: train, test: test, val_part: 0, batch: 4";
  const std::string model = "{type: text_cnn, width: 4, filters: 3, windows: [2, 3]}";
  for (const std::string& more :
       {std::string("}"), std::string(", odds: [words, pairs], folds: 3}")}) {
    const std::string run = trained(more.size() > 1 ? "odds" : "text", data + more, model);
    Predictor predictor(run);
    const Prediction p = predictor.text("Where ?");
    same(p, evaluated(run, "data.eval_batch=1").at(1));
    ASSERT_EQ(p.classes.at(0).size(), 2u);
    EXPECT_EQ(p.classes[0][0].label, p.classes[0][0].index == 0 ? "person" : "place");
    printed(run, "--text 'Where ?'", p);
    // Several, one a line.
    write_file(at("questions.txt"), "Who is unknown here ?\r\n\nWhere ?\n");
    const Prediction two = predictor.file(at("questions.txt"));
    ASSERT_EQ(two.classes.size(), 2u);
    EXPECT_NEAR(two.classes[1][0].score, p.classes[0][0].score, 1e-6);
    printed(run, "--input " + at("questions.txt"), two);
    EXPECT_EQ(error_of([&] { predictor.text(" "); }), "Value: 'the text' holds no words.");
  }
}

TEST_F(Predicting, RowsOfATable) {
  std::string rows = "a,b,y\n";
  for (int i = 0; i < 20; ++i) rows += fmt::format("{},{},{}\n", i, 20 - i, i % 3);
  write_file(at("rows.csv"), rows);
  const std::string data = "{type: csv, root: " + at("rows.csv") + ", test: " + at("rows.csv");
  const std::string run = trained("rows", data + "}", "{type: mlp, hidden: [4]}");
  Predictor predictor(run);
  const Prediction p = predictor.text("7,13");
  same(p, evaluated(run, "data.eval_batch=1").at(7));
  printed(run, "--text 7,13", p);
  // With names and the target.
  EXPECT_EQ(predictor.text("a,b,y\n7,13,2\n").to_string(), p.to_string());
  EXPECT_EQ(predictor.file(at("rows.csv")).classes.size(), 20u);
  EXPECT_EQ(error_of([&] { predictor.text("1,2,3,4"); }),
            "Value: 'the text' has 4 columns, the model takes 2.");
  // Numbers in place of classes.
  const std::string numbers = trained("numbers", data + ", target_dtype: float32}",
                                      "{type: mlp, hidden: [4]}", "loss: {type: mse}\n");
  const Prediction n = Predictor(numbers).text("7,13");
  EXPECT_EQ(n.kind, PredictionKind::numbers);
  ASSERT_EQ(n.numbers.at(0).size(), 1u);
  EXPECT_EQ(n.numbers[0][0], n.outputs[0].second.item<float>());
  printed(numbers, "--text 7,13", n);
}

TEST_F(Predicting, TheCensus) {
  const std::string root = data_folder("tabular");
  if (root.empty()) GTEST_SKIP() << "TANDEM_DATA has no tabular";
  const std::string run = trained("adult", "{type: adult}", "{type: mlp, hidden: [4]}");
  const std::string all = read_file(root + "/adult-test.csv");
  const std::string line = all.substr(0, all.find('\n'));
  const Prediction p = Predictor(run).text(line);
  const Tensor want = evaluated(run).at(0);
  ASSERT_EQ(p.outputs[0].second.size(1), 2);
  for (int64_t c = 0; c < 2; ++c)
    EXPECT_NEAR(p.outputs[0].second[0][c].item<float>(), want[0][c].item<float>(), 1e-4F);
  const std::string label = p.classes[0][0].label;
  EXPECT_TRUE(label == "<=50K" || label == ">50K") << label;
  write_file(at("people.csv"), line + "\n");
  printed(run, "--input " + at("people.csv"), p);
}

TEST_F(Predicting, ASound) {
  const std::string root = data_folder("fsdd");
  if (root.empty()) GTEST_SKIP() << "TANDEM_DATA has no fsdd";
  const std::string run =
      trained("speech", "{type: speech, length: 6000}", "{type: speech_cnn, width: 4}");
  const data::WavFolder files(root, {.filter = [](const std::string& stem) {
                                return std::atoi(stem.c_str() + stem.rfind('_') + 1) < 5;
                              }});
  std::string first;
  for (const auto& e : fs::directory_iterator(root))
    if (e.path().extension() == ".wav" && (first.empty() || e.path().string() < first) &&
        std::atoi(e.path().stem().string().c_str() + e.path().stem().string().rfind('_') + 1) < 5)
      first = e.path().string();
  Predictor predictor(run);
  const Prediction p = predictor.file(first);
  same(p, evaluated(run, "data.eval_batch=1").at(0));
  EXPECT_EQ(p.classes[0].size(), files.classes().size());
  EXPECT_EQ(p.classes[0][0].label, files.classes()[static_cast<size_t>(p.classes[0][0].index)]);
  printed(run, "--input " + first, p);
  from_sample(run, data::fixed_length(io::read_audio(first).waveform, 6000),
              p.outputs.at(0).second);
  io::save_wav(rand({1, 100}), 16000, at("other.wav"));
  EXPECT_NE(error_of([&] { predictor.file(at("other.wav")); }).find("has 16000 samples a second"),
            std::string::npos);
}

TEST_F(Predicting, AGraph) {
  const std::string root = data_folder("cora");
  if (root.empty()) GTEST_SKIP() << "TANDEM_DATA has no cora";
  const std::string run = trained("graph", "{type: planetoid, name: cora}", "{type: gcn}");
  data::Planetoid g = data::load_planetoid(root, "cora");
  const Tensor x = g.x / clamp_min(g.x.sum({1}, true), 1.0);
  const Prediction p = Predictor(run).arrays({x, g.edge_index});
  same(p, evaluated(run).at(0));
  EXPECT_EQ(p.classes.size(), static_cast<size_t>(x.size(0)));
  StateDict arrays;
  arrays["x"] = x;
  arrays["edge_index"] = g.edge_index;
  io::save_npz(arrays, at("graph.npz"));
  printed(run, "--top 1 --input " + at("graph.npz"), p, 1);
}

TEST_F(Predicting, Boxes) {
  for (const char* sub : {"voc/JPEGImages", "voc/Annotations", "voc/ImageSets/Main"})
    fs::create_directories(at(sub));
  for (const char* id : {"0", "1"}) {
    write_file(at("voc/JPEGImages/") + id + ".jpg",
               io::encode_png((rand({3, 96, 160}) * 255).to(DType::u8)));  // told by its bytes
    write_file(at("voc/Annotations/") + id + ".xml",
               "<annotation><object><name>red</name><bndbox><xmin>20</xmin><ymin>16</ymin>"
               "<xmax>80</xmax><ymax>64</ymax></bndbox></object></annotation>");
  }
  for (const char* set : {"train", "test"})
    write_file(at("voc/ImageSets/Main/") + set + ".txt", "0\n1\n");
  const std::string run = trained(
      "boxes",
      "{type: voc, root: " + at("voc") + ", size: [32, 64], val: '', classes: [white, red]}",
      "{type: detector, width: 8}", "");
  const std::string image = at("voc/JPEGImages/1.jpg");
  const Prediction p = Predictor(run, {.score = 0.001}).file(image);
  same(p, evaluated(run, "data.eval_batch=1").at(1));
  ASSERT_EQ(p.kind, PredictionKind::boxes);
  ASSERT_FALSE(p.boxes.at(0).empty());
  for (const PredictedBox& box : p.boxes[0]) {
    EXPECT_EQ(box.label, box.index == 0 ? "white" : "red");
    EXPECT_GE(box.score, 0.001);
    EXPECT_LT(box.corners[0], box.corners[2]);
  }
  printed(run, "--score 0.001 --input " + image, p);
  // The likeliest cell is the best box, in pixels of the resized image.
  const Tensor pixels = data::resize_image(io::read_image(image), 32, 64);
  const SampleModel s = with_preparation(load_run(run));
  const std::vector<Tensor> cells = s.model.run({pixels});
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[1].shape().to_string(), "[32, 2]");
  const auto best = cells[1].argmax().item<int64_t>() / 2;
  EXPECT_NEAR(cells[1].amax().item<float>(), p.boxes[0][0].score, 1e-6);
  for (int64_t k = 0; k < 4; ++k)
    EXPECT_NEAR(cells[0][best][k].item<float>() * (k % 2 ? 3 : 2.5),
                p.boxes[0][0].corners[static_cast<size_t>(k)], 1e-3);
  on_devices(run, [&](Predictor& q) { return q.file(image); });
  printed(run, "--score 0.9999 --input " + image, Predictor(run, {.score = 0.9999}).file(image));
}

TEST_F(Predicting, TheNextCharacter) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The cat sat.\nA dog ran.\n";
  write_file(at("prose.txt"), text);
  const std::string run =
      trained("gpt", "{type: chars, file: " + at("prose.txt") + ", block: 8, batch: 4}",
              "{type: gpt, layers: 1, heads: 2, width: 8}");
  Predictor predictor(run);
  const Prediction p = predictor.text("The c");
  ASSERT_EQ(p.outputs[0].second.shape(), Shape(1, 5, p.outputs[0].second.size(2)));
  printed(run, "--text 'The c'", p);
  // The likeliest one is what the model continues with, beyond its context too.
  for (const char* prompt : {"The c", "The cat sat.\nA d"}) {
    const RecipeSamples next =
        generate(run, {.prompts = {prompt}, .max_new_tokens = 1, .top_k = 1});
    const std::string label = predictor.text(prompt).classes.at(0).at(0).label;
    EXPECT_EQ(next.texts.at(0), label == "\\n" ? "\n" : label) << prompt;
    const RecipeSamples there = generate(
        run,
        {.prompts = {prompt}, .max_new_tokens = 9, .top_k = 1, .device = device_named("fake")});
    EXPECT_EQ(there.texts,
              generate(run, {.prompts = {prompt}, .max_new_tokens = 9, .top_k = 1}).texts);
  }
  EXPECT_NE(error_of([&] { predictor.text("xyz"); }).find("was trained on has no 'x'"),
            std::string::npos);
  EXPECT_NE(error_of([&] { generate(run, {.n = 3}); }).find("does not take --n"),
            std::string::npos);
}

TEST_F(Predicting, AMask) {
  for (const char* sub : {"m/image", "m/label"}) {
    fs::create_directories(at(sub));
    for (int i = 0; i < 3; ++i)
      write_file(at(sub) + "/" + std::to_string(i) + ".png",
                 io::encode_png((rand({1, 16, 24}) * 255).to(DType::u8)));
  }
  const std::string run = trained(
      "mask",
      "{type: image_mask, root: " + at("m") + ", crop: 16, crops: 2, batch: 2, test_samples: 1}",
      "{type: unet, base: 2}");
  const Prediction p = Predictor(run).file(at("m/image/2.png"));
  same(p, evaluated(run).at(0));
  EXPECT_EQ(p.kind, PredictionKind::image);
  EXPECT_EQ(p.image.numel(), 16 * 24);
  from_sample(run, io::read_image(at("m/image/2.png"), {.mode = io::ImageMode::gray}),
              p.outputs.at(0).second, "image:1x16x24");
  EXPECT_NE(error_of([&] { with_preparation(load_run(run)); }).find("--shapes image:1x240x320"),
            std::string::npos);
  on_devices(run, [](Predictor& q) { return q.file(at("m/image/2.png")); });
}

TEST(TrainFolder, OptionsThatContradict) {
  TempFolder f;
  write_file(f / "r.yaml", "recipe: r\n");
  const Recipe r = Recipe::load(f / "r.yaml");
  fs::create_directories(f / "run/checkpoints");
  EXPECT_EQ(run_folder(r, {.folder = f / "run"}), f / "run");
  EXPECT_EQ(run_folder(r, {.resume = f / "run"}), f / "run");
  EXPECT_EQ(run_folder(r, {.folder = f / "new", .resume = "none"}), f / "new");
  const auto wrong = [&](const TrainOptions& o) { return error_of([&] { run_folder(r, o); }); };
  EXPECT_NE(wrong({.folder = f / "run", .resume = "none"}).find("holds a run already"),
            std::string::npos);
  EXPECT_NE(wrong({.folder = f / "new", .resume = f / "run"}).find("name two folders"),
            std::string::npos);
  EXPECT_NE(wrong({.resume = f / "new"}).find("there is no run in"), std::string::npos);
}

}  // namespace
}  // namespace tandem::recipe
