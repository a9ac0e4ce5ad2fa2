// SPDX-License-Identifier: Apache-2.0
// `tandem generate` of runs: text by characters and by lines, images of a DDPM and a VAE, what each
// model rejects, and that the seed determines the result.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/models/text/generate.h"
#include "tandem/tandem.h"
#include "tests/cli/tool_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

using cli_test::has;
using cli_test::Result;
using cli_test::text_of;
using cli_test::tool;
using nlohmann::json;

// Short runs, shared by the tests.
class Generate : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("TANDEM_TOOL")) GTEST_SKIP() << "TANDEM_TOOL is not set";
    static bool made = false;
    if (made) return;
    made = true;
    std::string lines, prose;
    for (int i = 0; i < 40; ++i) lines += i % 2 ? "anna\n" : "berta\n";
    for (int i = 0; i < 60; ++i) prose += "The cat sat.\nÄ dog ran.\n";
    write_file(folder_ / "lines.txt", lines);
    write_file(folder_ / "prose.txt", prose);
    StateDict arrays;
    arrays["x"] = (rand({60, 8, 8}) * 255).to(DType::u8);
    arrays["y"] = remainder(arange(60), 3);
    io::save_npz(arrays, folder_ / "a.npz");
    const std::string loss = "loss: {type: cross_entropy}\n";
    train("names", "{type: lines, root: " + (folder_ / "lines.txt") + ", batch: 8}",
          "{type: char_rnn, cell: gru, embedding: 8, width: 16}", loss, 30);
    train("prose", "{type: chars, file: " + (folder_ / "prose.txt") + ", block: 16, batch: 8}",
          "{type: gpt, layers: 1, heads: 2, width: 16}", loss, 30);
    train("vae", "{type: digits}", "{type: vae, hidden: 16, latent: 2}", "", 5);
    train("ddpm", "{type: npy, root: " + (folder_ / "a.npz") + "}",
          "{type: ddpm, width: 4, steps: 8, sampler_steps: 4}", "", 2);
    write_file(folder_ / "ids.bin", std::string(2000, '\1'));
    train("ids", "{type: tokens, root: " + (folder_ / "ids.bin") + ", dtype: uint8, block: 8}",
          "{type: char_rnn, cell: rnn, embedding: 4, width: 4}", loss, 1);
    train("mlp", "{type: digits}", "{type: mlp, hidden: [8]}", loss, 2);
  }
  static void train(const char* name, const std::string& data, const std::string& model,
                    const std::string& loss, int steps) {
    write_file(folder_ / "recipe.yaml",
               std::string("recipe: r\nseed: 0\ndata: ") + data + "\nmodel: " + model + "\n" +
                   loss + "optim: {type: adam, lr: 0.02}\ntrainer: {max_steps: " +
                   std::to_string(steps) + ", report: false, metrics: []}\n");
    const Result r =
        tool("train " + (folder_ / "recipe.yaml") + " --quiet --run " + (folder_ / name) + " 2>&1");
    ASSERT_EQ(r.code, 0) << r.text;
  }
  static Result generate(const std::string& run, const std::string& more) {
    return tool("generate " + (folder_ / run.c_str()) + " " + more);
  }
  static inline TempFolder folder_;
};

TEST_F(Generate, TextContinuesItsPrompt) {
  const Result r = generate("prose", "--prompt 'The ' --max-new-tokens 40 --seed 1 2>/dev/null");
  ASSERT_EQ(r.code, 0);
  EXPECT_TRUE(r.text.starts_with("The ")) << r.text;
  EXPECT_EQ(r.text.size(), 4 + 40 + 1u) << r.text;  // beyond the context of 16
  // Several at once, the last one longer than the context.
  const Result j = generate("prose",
                            "--prompt The --prompt 'The cat sat. The cat sat.' --max-new-tokens 5 "
                            "--num-return-sequences 2 --json");
  ASSERT_EQ(j.code, 0);
  const json rows = json::parse(j.text)["results"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[1]["prompt"], "The");
  EXPECT_EQ(rows[3]["tokens"], 5);
  // No prompt: a new line of the text.
  EXPECT_EQ(generate("prose", "--max-new-tokens 5 2>/dev/null").text.size(), 6u);
}

TEST_F(Generate, NamesEndWithTheirLine) {
  const Result r = generate("names", "--num-return-sequences 12 --seed 2 --json");
  ASSERT_EQ(r.code, 0);
  std::set<std::string> names;
  const json all = json::parse(r.text);
  for (const json& row : all["results"]) {
    const std::string text = row["text"];
    EXPECT_EQ(text.find('\n'), text.npos);
    EXPECT_LT(text.size(), 200u);  // the end came
    names.insert(text);
  }
  EXPECT_GT(names.size(), 1u);
  // The likeliest character each time, line by line.
  const Result two = generate("names", "--prompt an --prompt be --top-k 1 2>/dev/null");
  EXPECT_EQ(two.text, "anna\nberta\n");
}

TEST_F(Generate, TheSeedSaysAll) {
  const std::pair<const char*, const char*> kRuns[] = {{"prose", "--prompt T --max-new-tokens 30"},
                                                       {"vae", "--n 3 --output OUT"},
                                                       {"ddpm", "--n 3 --output OUT"}};
  for (const auto& [run, options] : kRuns) {
    const auto made = [&, run = run, options = options](int seed, const char* file) {
      std::string text = options;
      if (const size_t at = text.find("OUT"); at != text.npos) text.replace(at, 3, folder_ / file);
      const Result r = generate(run, text + " --seed " + std::to_string(seed) + " 2>/dev/null");
      EXPECT_EQ(r.code, 0) << run;
      return text.find("--output") == text.npos ? r.text : text_of(folder_ / file);
    };
    const std::string one = made(1, "1.npy");
    EXPECT_EQ(one, made(1, "again.npy")) << run;
    EXPECT_NE(one, made(2, "2.npy")) << run;
  }
}

TEST_F(Generate, ImagesInFiles) {
  struct Row {
    const char *run, *options, *file;
    Shape shape;  // of the PNG or of "samples"
  };
  const Row kRows[] = {
      {"vae", "--n 5", "a.png", {1, 2 + 2 * 10, 2 + 3 * 10}},
      {"vae", "--n 5 --columns 5", "a.png", {1, 2 + 10, 2 + 5 * 10}},
      {"vae", "--n 2", "a.safetensors", {2, 1, 8, 8}},
      {"ddpm", "--label 2", "a.png", {1, 2 + 4 * 10, 2 + 4 * 10}},
      {"ddpm", "--n 5 --label 2 --label 0 --steps 2 --guidance 1", "a.npz", {5, 1, 8, 8}},
      {"ddpm", "--n 4", "a.npy", {4, 1, 8, 8}},
  };
  for (const Row& row : kRows) {
    const std::string file = folder_ / row.file;
    const Result r = generate(row.run, row.options + (" --output " + file) + " 2>&1");
    ASSERT_EQ(r.code, 0) << r.text;
    EXPECT_TRUE(has(r.text, file)) << r.text;
    const Tensor x = file.ends_with(".png")   ? io::read_image(file, {.mode = io::ImageMode::gray})
                     : file.ends_with(".npz") ? io::load_npz(file).at("samples")
                     : file.ends_with(".npy") ? io::load_npy(file)
                                              : load(file).at("samples");
    EXPECT_EQ(x.shape().to_string(), row.shape.to_string()) << row.options;
    if (x.dtype() == DType::f32) {
      EXPECT_TRUE(x.amin().item<float>() >= 0 && x.amax().item<float>() <= 1) << row.options;
    }
  }
  const Result r = generate("ddpm", "--n 5 --output " + (folder_ / "b.npz") + " --json");
  EXPECT_EQ(json::parse(r.text)["labels"], json::parse("[0, 1, 2, 0, 1]"));
  EXPECT_EQ(io::load_npz(folder_ / "b.npz").at("labels").to_vector<int64_t>(),
            (std::vector<int64_t>{0, 1, 2, 0, 1}));
}

TEST_F(Generate, SaysWhatIsPossible) {
  struct Row {
    const char *run, *options, *want;
  };
  const Row kRows[] = {
      {"prose", "--prompt 'The nö'",
       "--prompt: the text that the model was trained on has no 'ö'. It has"},
      {"prose", "--n 3", "the model 'gpt' does not take --n. It takes --prompt"},
      {"prose", "--prompt T --output a.png --label 1", "does not take --label, --output"},
      {"prose", "--top-k many", "--top-k: expected a whole number, got 'many'"},
      {"prose", "--temperature 0", "temperature must be above 0"},
      {"prose", "--num-return-sequences 0", "--num-return-sequences: expected 1 or more"},
      {"vae", "--label 3 --output a.png",
       "the model 'vae' does not take --label. It takes --n, --seed, --output, --columns"},
      {"vae", "", "--output: is missing"},
      {"vae", "--output a.jpg", "'a.jpg': samples are written as .png, .npy, .npz or"},
      {"vae", "--n 0 --output a.png", "--n: expected 1 or more samples"},
      {"ddpm", "--prompt 3 --output a.png", "the model 'ddpm' does not take --prompt"},
      {"ddpm", "--label 3 --output a.png", "--label: expected classes from 0 to 2, got 3"},
      {"ddpm", "--steps 9 --output a.png", "--steps: expected 1 to the model's 8 steps, got 9"},
      {"mlp", "--n 3", "`tandem predict"},
      {"ids", "--prompt T", "data of type 'tokens' keeps no characters"},
      {".", "--prompt T", "is neither a run folder"},
      {"prose", "--weights bets", "are 'last' or 'best', got 'bets'"},
  };
  for (const Row& row : kRows) {
    const Result r = generate(row.run, row.options + std::string(" 2>&1"));
    EXPECT_EQ(r.code, 1) << row.options;
    EXPECT_TRUE(has(r.text, row.want)) << row.want << " in " << r.text;
  }
}

TEST_F(Generate, AHuggingFaceFolderTakesTheSameOptions) {
  const std::string folder = folder_ / "hf";
  std::filesystem::copy("tests/golden/hf/gpt2", folder);
  std::string words;
  for (int i = 0; i < 32; ++i) words += fmt::format("{}\"w{}\":{}", i > 0 ? "," : "", i, i);
  write_file(folder + "/tokenizer.json",
             R"({"version":"1.0","pre_tokenizer":{"type":"WhitespaceSplit"},"model":{"type":)"
             R"("WordLevel","unk_token":"w0","vocab":{)" +
                 words + "}}}");
  const Result r = generate("hf", "--prompt 'w1 w2' --prompt w4 --max-new-tokens 3 --json");
  ASSERT_EQ(r.code, 0);
  const json rows = json::parse(r.text)["results"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["prompt"], "w4");
  const Result one = generate("hf", "--prompt w4 --max-new-tokens 3 2>/dev/null");
  EXPECT_EQ(one.text, "w4" + rows[1]["text"].get<std::string>() + "\n");
  const auto drawn = [](const char* seed) {
    return generate("hf", std::string("--prompt w4 --max-new-tokens 12 --sample --top-k 0 "
                                      "--num-return-sequences 2 2>/dev/null --seed ") +
                              seed)
        .text;
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
  const std::pair<const char*, const char*> kWrong[] = {
      {"", "--prompt: is missing"},
      {"--prompt w1 --n 3", "a Hugging Face folder does not take --n. It takes --max-new-tokens"},
      {"--prompt w1 --num-return-sequences 2",
       "expected --sample: without it they would be the same"},
      {"--prompt w1 --weights best", "--weights is for runs"},
  };
  for (const auto& [options, want] : kWrong) {
    const Result wrong = generate("hf", options + std::string(" 2>&1"));
    EXPECT_EQ(wrong.code, 1) << options;
    EXPECT_TRUE(has(wrong.text, want)) << want << " in " << wrong.text;
  }
}

TEST_F(Generate, ARunFromBeforeLettersWereKept) {
  const std::string file = folder_ / "prose/data.json", kept = text_of(file);
  json old = json::parse(kept);
  old.erase("characters");
  write_file(file, old.dump());
  Result r = generate("prose", "--prompt T 2>&1");
  EXPECT_EQ(r.code, 1);
  EXPECT_TRUE(has(r.text, "has no \"characters\": the run is from before they were kept"))
      << r.text;
  // What the error says to do.
  const std::string run = folder_ / "prose";
  r = tool("train " + run + "/recipe.yaml --quiet --run " + run + " 2>&1");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_EQ(json::parse(text_of(file)), json::parse(kept));
  EXPECT_EQ(generate("prose", "--prompt T >/dev/null 2>&1").code, 0);
}

// A net that reports what it saw: the next token is the sum of the visible ones.
TEST(GenerateWithoutACache, SeesTheLastTokens) {
  const auto net = [](const Tensor& ids) {
    const Tensor sums = remainder(cumsum(ids, 1), 7);
    return (sums.unsqueeze(2) == arange(7)).to(DType::f32);
  };
  const auto rows = models::generate(net, 3, {{1}, {1, 2}, {1, 2, 3, 4}}, {.max_new_tokens = 3});
  EXPECT_EQ(rows[0], (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(rows[1], (std::vector<int64_t>{3, 6, 4}));
  EXPECT_EQ(rows[2], (std::vector<int64_t>{2, 2, 1}));
  // A row alone gives the same, and ends with its end token.
  EXPECT_EQ(models::generate(net, 3, {{1, 2}}, {.max_new_tokens = 3, .eos_token_id = {6}})[0],
            (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(error_of([&] { models::generate(net, 3, {{}}, {}); }),
            "Value: generate expects prompts of at least one token.");
}

}  // namespace
}  // namespace tandem
