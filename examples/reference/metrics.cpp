// SPDX-License-Identifier: Apache-2.0
// The example of docs/metrics.md.
#include <tandem/tandem.h>
using namespace tandem;

int main() {
  init();
  // In a loop of your own: batches in, one number out. A Trainer takes the names instead.
  Tensor scores = tensor({{2.0, 0.1}, {0.3, 1.0}, {1.5, 0.2}, {0.9, 0.4}});
  Tensor labels = tensor({0, 1, 1, 0});
  auto accuracy = train::make_metric("accuracy");
  accuracy->update(scores, labels);
  print("{} {}\n", accuracy->name(), accuracy->compute());

  train::ConfusionMatrix recall(train::ConfusionMatrix::Kind::recall);
  recall.update(scores, labels);
  print("wanted by given\n{}\n", recall.matrix());
  print("recall of class 1: {}\n", recall.per_class()[1]);

  // Parts that were counted apart are merged.
  auto first = train::make_metric("mae"), second = train::make_metric("mae");
  first->update(tensor({1.0, 2.0}), tensor({1.0, 4.0}));
  second->update(tensor({5.0}), tensor({4.0}));
  first->merge(*second);
  print("{} {}\n", first->name(), first->compute());
  return accuracy->compute() == 0.75 && recall.per_class()[1] == 0.5 && first->compute() == 1 ? 0
                                                                                              : 1;
}
