// SPDX-License-Identifier: Apache-2.0
// Runs trained and served: an image or a text goes in, the labels of Predictor come out, whatever
// form the client sends it in and whoever asks at the same time.
#include <gtest/gtest.h>

#include "tandem/data/sets/datasets.h"
#include "tandem/io/image.h"
#include "tandem/io/json.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/predictor.h"
#include "tests/io/io_helper.h"
#include "tests/serve/run_helper.h"
#include "tests/serve/serve_helper.h"
#include "tests/support/init.h"

namespace tandem::serve {
namespace {

// The labels of an answer are those of a prediction, likeliest first, with the same chances.
void expect_labels(const HttpResponse& r, const std::vector<recipe::ScoredClass>& want) {
  ASSERT_EQ(r.status, 200) << r.body;
  const io::Json json = io::parse_json(r.body);
  const io::Json::Object& got = *json.as_object();
  ASSERT_EQ(got.size(), std::min<size_t>(5, want.size()));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].label);
    EXPECT_EQ(*got[i].second.as_double(), want[i].score);
  }
}

TEST(ServingRuns, ImagesAndTextsInLabelsOut) {
  const TempFolder t;
  const std::string digits = trained_run(t, "digits", "{type: digits}", "{type: mlp, hidden: [8]}");
  const std::string texts = trained_texts(t);
  Running server({.models = t / "models", .default_model = "digits"});
  ASSERT_EQ(server->repository().all().size(), 2u);

  recipe::Predictor predictor(digits);
  std::vector<std::string> images;
  std::vector<std::vector<recipe::ScoredClass>> want;
  for (size_t i = 0; i < 8; ++i) {
    images.push_back(
        io::encode_png(round(data::Digits({.train = false}).get(static_cast<int64_t>(i)).x * 255.0)
                           .to(DType::u8)));
    want.push_back(predictor.bytes(images.back()).classes[0]);
  }
  expect_labels(server.post("/predictions/digits", images[0], {{"Content-Type", "image/png"}}),
                want[0]);
  expect_labels(server.post("/invocations", images[1]), want[1]);
  const std::string form =
      "--B\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n"
      "--B\r\nContent-Disposition: form-data; name=\"data\"; "
      "filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n" +
      images[2] + "\r\n--B--\r\n";
  expect_labels(server.post("/predictions/digits", form,
                            {{"Content-Type", "multipart/form-data; boundary=B"}}),
                want[2]);
  // Many at once: batches give what each gives alone.
  std::vector<std::thread> clients;
  for (size_t k = 0; k < 4; ++k)
    clients.emplace_back([&, k] {
      const auto c = server.client();
      for (size_t i = 0; i < 24; ++i) {
        const size_t n = (i + k) % images.size();
        expect_labels(c->post("/predictions/digits", images[n]), want[n]);
      }
    });
  for (std::thread& c : clients) c.join();

  const HttpResponse text =
      server.post("/predictions/texts", "Where is this book ?", {{"Content-Type", "text/plain"}});
  expect_labels(text, recipe::Predictor(texts).text("Where is this book ?").classes[0]);
  EXPECT_EQ(server.post("/predictions/digits", "no image").status, 400);
  EXPECT_EQ(server.post("/predictions/digits", "").status, 400);
  EXPECT_EQ(server.post("/predictions/digits", images[0].substr(0, 60)).status, 400);
  for (const char* bad :
       {"multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=C"})
    EXPECT_EQ(server.post("/predictions/digits", form, {{"Content-Type", bad}}).status, 400) << bad;
  EXPECT_TRUE(has(server.get("/v2/models/digits").body, "tandem_run"));
}

}  // namespace
}  // namespace tandem::serve
