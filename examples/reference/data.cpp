// SPDX-License-Identifier: Apache-2.0
// The example of docs/data.md.
#include <tandem/tandem.h>
using namespace tandem;

// A dataset of your own has size() and get(i); get() may run on several threads.
struct Squares {
  int64_t size() const { return 1000; }
  data::Example get(int64_t i) const {
    return {full({1}, static_cast<double>(i) / 1000), full({1}, static_cast<double>(i * i) / 1e6)};
  }
};

int main() {
  init();
  auto noisy = data::pipeline(Squares(), {.seed = 1})
                   .filter([](const data::Example& e) { return e.x.item<float>() > 0.1; })
                   .shuffle()
                   .map([](data::Example e) {
                     return data::Example{e.x + randn({1}) * 0.01, e.y};
                   })
                   .batch(32, {.drop_last = true})
                   .prefetch({.depth = 4});
  print("{}: {} batches\n", noisy.text(), noisy.size());
  for (auto [x, y] : noisy)  // one epoch; the next loop gives the next one
    if (x.size(0) != 32) return 1;

  // A pass resumes exactly where its state was taken.
  auto begun = noisy.seed(7), resumed = noisy.seed(7);
  auto it = begun.begin();
  ++it;
  resumed.load_state(begun.state());
  Tensor next = (*++it).x;
  bool same = equal(next, (*resumed.begin()).x);

  // Tensors in memory, and PyTorch's loader.
  data::TensorDataset table(rand({100, 4}), randint(3, {100}));
  int64_t rows = 0;
  for (auto [x, y] : data::DataLoader(table, {.batch_size = 16, .shuffle = true, .seed = 2}))
    rows += x.size(0);
  print("resumed: {}, {} rows\n", same, rows);
  return same && rows == 100 ? 0 : 1;
}
