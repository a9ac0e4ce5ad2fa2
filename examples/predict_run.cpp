// SPDX-License-Identifier: Apache-2.0
// Asks the model of a run from C++, as `tandem predict` does: predict_run RUN FILE. With a folder
// that does not exist it trains a small recipe there first and asks it about a digit.
// test: digits
#include <tandem/tandem.h>

using namespace tandem;

const char* const kRecipe = R"(
recipe: digits
data: {type: digits, batch: 64}
model: {type: mlp, hidden: [64]}
loss: {type: cross_entropy}
optim: {type: adam, lr: 3e-3}
trainer: {epochs: 4}
)";

int main(int argc, char** argv) {
  init();
  const std::string run = argc > 1 ? argv[1] : "digits";
  if (!recipe::is_run(run)) {
    const recipe::Recipe digits{.file = "digits", .root = io::parse_yaml(kRecipe)};
    const recipe::RecipeRun made = recipe::train(digits, {.folder = run, .progress = false});
    for (const auto& [name, value] : made.test) print("{} {:.4f}\n", name, value);
  }
  recipe::Predictor predictor(run);
  const Tensor digit = round(data::Digits({.train = false}).get(0).x * 255.0).to(DType::u8);
  const recipe::Prediction p = argc > 2 ? predictor.file(argv[2]) : predictor.image(digit);
  print("{}", p.to_string(3));  // the lines of `tandem predict RUN --input FILE --top 3`
  return 0;
}
