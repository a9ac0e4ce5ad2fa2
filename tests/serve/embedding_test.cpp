// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings: vectors are those of the model run directly: alone to the bit,
// beside others up to rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tandem/base/base64.h"
#include "tandem/io/json.h"
#include "tandem/models/pretrained.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

class Embeddings : public ::testing::Test {
 protected:
  static std::string golden_folder(const std::string& family) {
    const char* root = std::getenv("TANDEM_SOURCE_DIR");
    return std::string(root ? root : ".") + "/tests/golden/hf/" + family;
  }
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    std::string vocab;
    for (int i = 0; i < 32; ++i) vocab += fmt::format("{}\"w{}\":{}", i ? "," : "", i, i);
    for (const char* family : {"sentence", "bert", "plain"}) {
      const std::string from = std::string(family) == "plain" ? "sentence" : family;
      std::filesystem::copy(golden_folder(from), *folder_ / family,
                            std::filesystem::copy_options::recursive);
      write_file(*folder_ / (std::string(family) + "/tokenizer.json"),
                 R"({"model":{"type":"WordLevel","unk_token":"w0","vocab":{)" + vocab +
                     R"(}},"pre_tokenizer":{"type":"Whitespace"}})");
    }
    std::filesystem::remove(*folder_ / "plain/modules.json");  // the encoder alone
    server_ = new Running({.models = folder_->path().string()});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static HttpResponse ask(const std::string& fields, const char* model = "sentence") {
    return server_->post("/v1/embeddings", fmt::format(R"({{"model":"{}",{}}})", model, fields));
  }
  static std::vector<std::vector<float>> vectors(const HttpResponse& r) {
    EXPECT_EQ(r.status, 200) << r.body;
    std::vector<std::vector<float>> out;
    const io::Json j = io::parse_json(r.body);
    for (const io::Json& entry : *j.find("data")->as_array()) {
      EXPECT_EQ(*entry.find("index")->as_int(), static_cast<int64_t>(out.size()));
      out.emplace_back();
      for (const io::Json& v : *entry.find("embedding")->as_array())
        out.back().push_back(static_cast<float>(io::number_of(&v)));
    }
    return out;
  }
  static std::vector<float> direct(const std::vector<int64_t>& ids, bool sentence = true) {
    const auto model = models::from_pretrained(*folder_ / (sentence ? "sentence" : "plain"));
    const Tensor row = tensor(ids, Shape(1, static_cast<int64_t>(ids.size())));
    const NoGradGuard no_grad;
    const Tensor y = model->run({.input_ids = row, .attention_mask = ones_like(row)}).at(0);
    return (sentence ? y : y.mean({1})).contiguous().to_vector<float>();
  }
  static inline TempFolder* folder_;
  static inline Running* server_;
};

TEST_F(Embeddings, AreThoseOfTheModel) {
  const std::vector<std::vector<int64_t>> ids = {{3, 4, 5}, {6}, {7, 8, 9}, {9, 8, 7, 6, 5}, {6}};
  std::string texts, lists;
  for (const auto& row : ids) {
    std::string words, numbers;
    for (const int64_t id : row) {
      words += fmt::format("{}w{}", words.empty() ? "" : " ", id);
      numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", id);
    }
    texts += fmt::format("{}\"{}\"", texts.empty() ? "" : ",", words);
    lists += fmt::format("{}[{}]", lists.empty() ? "" : ",", numbers);
    const auto alone = vectors(ask("\"input\":\"" + words + "\""));
    ASSERT_EQ(alone.size(), 1U);
    EXPECT_EQ(alone[0], direct(row)) << words;
    EXPECT_EQ(vectors(ask("\"input\":[" + numbers + "]")), alone);
    EXPECT_EQ(vectors(ask("\"input\":\"" + words + "\"", "plain"))[0], direct(row, false));
  }
  const HttpResponse together = ask("\"input\":[" + texts + "]");
  const auto all = vectors(together);
  ASSERT_EQ(all.size(), ids.size());
  const auto other = vectors(ask("\"input\":[" + lists + "]"));
  ASSERT_EQ(other.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> want = direct(ids[i]);
    ASSERT_EQ(all[i].size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_NEAR(all[i][k], want[k], 1e-6) << i;  // rows of one run may round differently
      EXPECT_NEAR(other[i][k], want[k], 1e-6) << i;
    }
  }
  const io::Json j = io::parse_json(together.body);
  EXPECT_EQ(*j.find("usage")->find("prompt_tokens")->as_int(), 13);
  EXPECT_EQ(*j.find("model")->as_string(), "sentence");
}

TEST_F(Embeddings, Forms) {
  const std::vector<float> want = direct({3, 4, 5});
  const io::Json coded =
      io::parse_json(ask(R"("input":"w3 w4 w5","encoding_format":"base64")").body);
  EXPECT_EQ(*coded.find("data")->as_array()->at(0).find("embedding")->as_string(),
            base64({reinterpret_cast<const char*>(want.data()), want.size() * sizeof(float)}));
  // Fewer dimensions of a vector of length 1 have length 1 again.
  const std::vector<float> cut = vectors(ask(R"("input":"w3 w4 w5","dimensions":3)"))[0];
  ASSERT_EQ(cut.size(), 3U);
  double sum = 0;
  for (const float v : cut) sum += static_cast<double>(v) * v;
  EXPECT_NEAR(sum, 1, 1e-5);
  for (size_t i = 1; i < 3; ++i) EXPECT_NEAR(cut[i] * want[0], cut[0] * want[i], 1e-6);
}

// As many texts as a request may have, more than a model's queue has places.
TEST_F(Embeddings, AsManyTextsAsDocumented) {
  std::string texts;
  for (int i = 0; i < 2048; ++i) texts += fmt::format("{}\"w{} w2\"", i ? "," : "", i % 30 + 1);
  const auto all = vectors(ask("\"input\":[" + texts + "]"));
  ASSERT_EQ(all.size(), 2048u);
  EXPECT_EQ(all[7].size(), all[2047].size());
  EXPECT_NE(all[7], all[8]);
}

TEST_F(Embeddings, Refusals) {
  std::string words;
  for (int i = 0; i < 21; ++i) words += "w3 ";
  struct Case {
    const char* model;
    std::string fields;
    const char* text;
  };
  const Case cases[] = {{"sentence", R"("input":[])", "'input' is array"},
                        {"sentence", R"("user":"u")", "'input' is missing"},
                        {"sentence", R"("input":[1.5])", "'input' holds number"},
                        {"sentence", R"("input":[["w3"]])", "whole numbers"},
                        {"sentence", R"("input":"")", "no tokens"},
                        {"sentence", "\"input\":\"" + words + "\"", "21 tokens"},
                        {"sentence", R"("input":"w3","dimensions":99)", "'dimensions' is 99"},
                        {"sentence", R"("input":"w3","dimensions":0)", "'dimensions' expects"},
                        {"sentence", R"("input":"w3","encoding_format":"hex")", "got \\\"hex"},
                        {"sentence", R"("input":"w3","temperature":1)", "'temperature'"},
                        {"sentence", R"("input":[99])", "99"},
                        {"bert", R"("input":"w3")", "does not embed texts"}};
  for (const Case& c : cases) {
    const HttpResponse r = ask(c.fields, c.model);
    EXPECT_EQ(r.status, 400) << c.fields << "\n" << r.body;
    EXPECT_NE(r.body.find(c.text), std::string::npos) << c.fields << "\n" << r.body;
  }
  EXPECT_EQ(server_->post("/v1/completions", R"({"model":"sentence","prompt":"w3"})").status, 400);
  EXPECT_EQ(io::parse_json(server_->get("/v1/models").body).find("data")->as_array()->size(), 2U);
}

}  // namespace
}  // namespace tandem::serve
