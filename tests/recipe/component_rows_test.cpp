// SPDX-License-Identifier: Apache-2.0
// The rows of data sources, models and agents: all are whole; the example of every data source
// reads files of its kind, the example of every model takes a training step on data that suits it,
// and the example of every agent runs.
#include "tandem/recipe/component_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tandem/data/transforms/transform_table.h"
#include "tandem/io/idx.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/io/tensorflow/tfrecord.h"
#include "tandem/rl/agents.h"
#include "tandem/tandem.h"
#include "tests/data/shards_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/component_checks.h"
#include "tests/support/init.h"

namespace tandem::recipe {
namespace {

namespace fs = std::filesystem;
/// Small files of every kind that the examples name, in a folder that the test works in.
class Components : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    before_ = fs::current_path();
    fs::current_path(folder_->path());
    write_rows();
    write_images();
    write_records();
    write_boxes_masks_words();
  }
  static void TearDownTestSuite() {
    fs::current_path(before_);
    folder_.reset();
  }
  static void put(const std::string& name, const std::string& bytes) {
    if (const fs::path parent = fs::path(name).parent_path(); !parent.empty())
      fs::create_directories(parent);
    write_file(name, bytes);
  }
  static std::string png(int64_t channels, int64_t h, int64_t w, int64_t value) {
    return io::encode_png(full({channels, h, w}, value, DType::u8));
  }

  static void write_rows() {
    std::string csv = "a,b,c\n", jsonl, lines, sentences, tokens, census;
    for (int i = 0; i < 40; ++i) {
      csv += fmt::format("{},{},{}\n", i % 3, i % 5, i % 2);
      jsonl += fmt::format("{{\"x\": [{}, {}], \"y\": {}}}\n", i % 3, i % 5, i % 2);
      lines += i % 2 ? "anna\n" : "otto and bob\n";
      sentences += i % 2 ? "good a fine day it is today\n" : "bad what a long and rainy night\n";
      census +=
          "39, Private, 77516, Bachelors, 13, Single, Clerk, No, White, Male, 2174, 0, 40, "
          "Here, " +
          std::string(i % 2 ? ">50K\n" : "<=50K\n");
      census +=
          "50, Public, 83311, Masters, 14, Married, Boss, Wife, White, Female, 0, 10, 13, "
          "There, <=50K\n";
    }
    for (int i = 0; i < 600; ++i) tokens += std::string{static_cast<char>(i % 7), '\0'};
    put("table.csv", csv);
    put("rows.jsonl", jsonl);
    put("lines.txt", lines);
    put("sentences.txt", sentences);
    put("tokens.bin", tokens);
    put("census/adult-train.csv", census);
    put("census/adult-test.csv", census);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "what is written here is read byte by byte. ";
    put("text.txt", text);
  }
  static void write_images() {
    fs::create_directories("mnist");
    for (const char* part : {"train", "t10k"}) {
      const int64_t n = 40;
      io::save_idx((rand({n, 28, 28}) * 255).to(DType::u8),
                   fmt::format("mnist/{}-images-idx3-ubyte", part));
      io::save_idx(remainder(arange(n), 10).to(DType::u8),
                   fmt::format("mnist/{}-labels-idx1-ubyte", part));
    }
    std::string ten, hundred;
    for (int i = 0; i < 20; ++i) {
      const std::string pixels(3072, static_cast<char>(10 * i));
      ten += std::string(1, static_cast<char>(i % 10)) + pixels;
      hundred += std::string{static_cast<char>(i % 20), static_cast<char>(i)} + pixels;
    }
    for (int k = 1; k <= 5; ++k) put(fmt::format("cifar10/data_batch_{}.bin", k), ten);
    put("cifar10/test_batch.bin", ten);
    put("cifar100/train.bin", hundred);
    put("cifar100/test.bin", hundred);
    for (int i = 0; i < 10; ++i) {
      put(fmt::format("images/cat/{}.png", i), png(3, 20, 24, 20 * i));
      put(fmt::format("images/dog/{}.png", i), png(3, 24, 20, 250 - 20 * i));
    }
  }
  static void write_records() {
    const Tensor x = (rand({40, 1, 8, 8}) * 255).to(DType::u8);
    io::save_npz(StateDict::of({{"x", x}, {"y", remainder(arange(40), 2).to(DType::u8)}}),
                 "arrays.npz");
    std::string shards[2], records;
    for (int i = 0; i < 24; ++i) {
      const std::string file = png(3, 8, 8, 9 * i);
      shards[i % 2] += data::tar_entry(fmt::format("{:03}.png", i), file);
      shards[i % 2] += data::tar_entry(fmt::format("{:03}.cls", i), std::to_string(i / 2 % 2));
      io::TFExample e;
      e["image"] = {.kind = io::TFFeature::Kind::bytes, .bytes = {file}};
      e["label"] = {.kind = io::TFFeature::Kind::ints, .ints = {i % 2}};
      records += io::tfrecord(io::write_tf_example(e));
    }
    for (int k = 0; k < 2; ++k)
      put(fmt::format("shard-{}.tar", k), shards[k] + std::string(1024, '\0'));
    put("images.tfrecord", records);
  }
  static void write_boxes_masks_words() {
    std::string names;
    for (int i = 0; i < 4; ++i) {
      put(fmt::format("boxes/JPEGImages/{}.jpg", i), png(3, 48, 48, 60 * i));
      put(fmt::format("boxes/Annotations/{}.xml", i),
          fmt::format("<annotation><filename>{}.jpg</filename><object><name>{}</name><bndbox>"
                      "<xmin>5</xmin><ymin>5</ymin><xmax>30</xmax><ymax>30</ymax></bndbox>"
                      "</object></annotation>",
                      i, i % 2 ? "RBC" : "WBC"));
      names += std::to_string(i) + "\n";
      put(fmt::format("masks/image/{}.png", i), png(1, 48, 48, 50 * i));
      put(fmt::format("masks/label/{}.png", i), png(1, 48, 48, i % 2 ? 255 : 0));
    }
    for (const char* set : {"train", "val", "test"})
      put(fmt::format("boxes/ImageSets/Main/{}.txt", set), names);
    fs::create_directories("words");
    for (int word = 0; word < 2; ++word)
      for (int take = 0; take < 12; ++take)
        io::save_wav(rand({1, 3000}) * (word ? 0.5 : 0.1), 8000,
                     fmt::format("words/{}_eve_{}.wav", word, take));
  }

  // The data of an example; nothing where this machine has none of it.
  static std::optional<RecipeData> data_of(const std::string& name) {
    if (name == "planetoid") {
      const char* all = std::getenv("TANDEM_DATA");
      if (!all || !fs::exists(std::string(all) + "/cora")) return {};
    }
    manual_seed(5);
    const DataRow& row = data_sources().at(name);
    const io::Yaml yaml = io::parse_yaml(row.example, "example");
    Options o(&yaml, "data", "example");
    const Chosen<DataRow> chosen = read_component(o, data_sources());
    o.finish();
    return row.make(chosen.options.get(), o, 5);
  }
  static train::Batch first(data::AnyPipeline pipeline) {
    pipeline.set_epoch(0);
    pipeline.begin_pass();
    train::Batch batch;
    EXPECT_TRUE(pipeline.next(batch));
    return batch;
  }

  static inline std::unique_ptr<TempFolder> folder_;
  static inline fs::path before_;
};

TEST_F(Components, EveryDataSourceIsWholeAndItsExampleReads) {
  ASSERT_GE(data_sources().rows().size(), 20u);
  for (const DataRow* row : data_sources().rows()) {
    SCOPED_TRACE(row->name);
    check_component(data_sources(), *row);
    std::optional<RecipeData> d;
    ASSERT_NO_THROW(d = data_of(row->name)) << error_of([&] { data_of(row->name); });
    if (!d) continue;
    const train::Batch batch = first(d->train);
    EXPECT_GE(batch.size(), 2u);
    EXPECT_FALSE(d->info.empty());
    for (const auto& part : {d->val, d->test})
      if (part) {
        EXPECT_EQ(first(*part).size(), batch.size());
      }
    // A file like the samples of the test set.
    if (!row->prepare) continue;
    const io::Yaml yaml = io::parse_yaml(row->example, "example");
    Options o(&yaml, "data", "example");
    const Chosen<DataRow> chosen = read_component(o, data_sources());
    const Preparation p =
        row->prepare(chosen.options.get(), o, {.info = d->info, .fields = {}, .facts = d->facts});
    const bool gray = batch[0].dim() == 4 && batch[0].size(1) == 1;
    const std::string name = row->name;
    const std::string file = p.kind == SampleKind::sound           ? "words/0_eve_1.wav"
                             : p.kind == SampleKind::image && gray ? "masks/image/1.png"
                             : p.kind == SampleKind::image         ? "images/cat/1.png"
                             : name == "adult"                     ? "census/adult-test.csv"
                             : name == "csv"                       ? "table.csv"
                                                                   : "sentences.txt";
    const bool characters = name == "chars" || name == "lines";
    const PreparedBatch prepared = p.read(characters ? "a" : read_file(file), file);
    ASSERT_FALSE(prepared.fields.empty());
    EXPECT_EQ(prepared.fields[0].dim(), batch[0].dim());
    EXPECT_EQ(prepared.fields[0].dtype(), batch[0].dtype());
  }
}

TEST_F(Components, EveryModelIsWholeAndItsExampleTakesAStep) {
  const std::map<std::string, std::string> suits = {
      {"mlp", "digits"},          {"digits_cnn", "digits"},
      {"keras_convnet", "mnist"}, {"vae", "mnist"},
      {"ddpm", "mnist"},          {"speech_cnn", "speech"},
      {"dcgan", "mnist"},         {"gpt", "chars"},
      {"char_rnn", "chars"},      {"text_cnn", "sentences"},
      {"gcn", "planetoid"},       {"gat", "planetoid"},
      {"unet", "image_mask"},     {"detector", "voc"},
      {"lenet", "mnist"},         {"text_encoder", "sentences"},
  };
  size_t stepped = 0;
  for (const ModelRow* row : recipe_models().rows()) {
    SCOPED_TRACE(row->name);
    check_component(recipe_models(), *row);
    const auto it = suits.find(row->name);
    if (it == suits.end()) {  // by name, of models::list(): lenet stands for all
      EXPECT_STREQ(row->doc, recipe_models().at("lenet").doc);
      continue;
    }
    const std::optional<RecipeData> d = data_of(it->second);
    if (!d) continue;
    const io::Yaml yaml = io::parse_yaml(row->example, "example");
    Options o(&yaml, "model", "example");
    const Chosen<ModelRow> chosen = read_component(o, recipe_models());
    const RecipeModel model = row->make(*row, chosen.options.get(), o, d->info);
    const train::Batch batch = first(d->train);
    Tensor loss;
    if (model.step) {
      loss = model.step(batch).loss;
    } else {
      const auto [output, target] = model.forward(batch);
      loss = cross_entropy(output, target);
    }
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<float>()));
    ++stepped;
  }
  EXPECT_GE(stepped, suits.size() - 2);
}

TEST_F(Components, EveryAgentIsWholeAndItsExampleRuns) {
  ASSERT_EQ(rl::agents().rows().size(), 4u);
  const Registry all = Registry::standard();
  for (const rl::AgentRow* row : rl::agents().rows()) {
    SCOPED_TRACE(row->name);
    check_component(rl::agents(), *row, {&agent_fields()});
    std::string example = row->example;
    example.pop_back();
    put("agent.yaml", "agent: " + example + ", eval_episodes: 1}\n");
    const RecipeRun run = run_recipe(Recipe::load("agent.yaml"), all, "", false);
    EXPECT_TRUE(std::isfinite(train::find_log(run.test, "test/return")));
  }
}

TEST_F(Components, FieldsOfPartsHaveDocs) {
  for (const FieldsType* type : {&model_fields(), &agent_fields(), &trainer_fields()})
    for (const FieldInfo& i : describe_fields(*type))
      EXPECT_GE(std::string(i.field.doc).size(), 4u) << i.name;
}

TEST_F(Components, RegistryHasEveryRow) {
  const Registry all = Registry::standard();
  EXPECT_EQ(all.data.size(), data_sources().rows().size());
  EXPECT_EQ(all.model.size(), recipe_models().rows().size());
  EXPECT_EQ(all.agent.size(), rl::agents().rows().size());
}

TEST_F(Components, ReferenceNamesEveryRow) {
  const std::string page = recipe_reference();
  const RegistryBase* all[] = {&data_sources(), &recipe_models(), &data::transforms(),
                               &rl::agents()};
  for (const RegistryBase* registry : all)
    for (const std::string& name : registry->names())
      EXPECT_NE(page.find("`" + name + "`"), page.npos) << name;
  EXPECT_NE(page.find("| `early_stop.patience` |"), page.npos);
}

TEST_F(Components, TransformsOfText) {
  manual_seed(1);
  const Tensor image = (rand({3, 12, 12}) * 255).to(DType::u8);
  EXPECT_TRUE(
      equal(make_transform("{type: CenterCrop, size: 6}")(image), data::CenterCrop({6})(image)));
  EXPECT_EQ(make_transform("[{type: Resize, size: 9}, {type: RGB}]")(image).shape(),
            Shape(3, 9, 9));
  EXPECT_NE(error_of([] {
              make_transform("{type: CentreCrop}");
            }).find("there is no transform 'CentreCrop', did you mean 'CenterCrop'?"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::recipe
