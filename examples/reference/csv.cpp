// SPDX-License-Identifier: Apache-2.0
// The example of docs/csv.md.
#include <tandem/tandem.h>
using namespace tandem;

int main() {
  init();
  write_file("flowers.csv",
             "length,width,kind\n"
             "5.1,3.5,setosa\n"
             "7.0,3.2,\"versicolor, wild\"\n"
             "6.3,3.3,virginica\n");
  io::Csv table = io::Csv::read("flowers.csv");
  print("{} rows of {} columns\n", table.rows(), table.columns());
  Tensor lengths = table.column("length", float32);  // [3]
  Tensor sizes = table.table(0, 2, float32);         // [3, 2]
  std::string kind(table.field(1, table.index("kind")));
  print("mean {:.2f}, {}, {}\n", lengths.mean().item<float>(), sizes.shape(), kind);
  try {
    table.column("kind", float32);
  } catch (const Error& e) {
    print("{}\n", e.what());  // names file, line and column
  }

  // A table of numbers as a dataset: the last column is what is to be learned.
  write_file("numbers.csv", "a,b,label\n0.5,1,0\n0.25,2,1\n");
  data::CSVDataset numbers("numbers.csv");
  auto [x, y] = numbers.get(1);
  print("{} {}\n", x.shape(), y.item<int64_t>());
  return kind == "versicolor, wild" && y.item<int64_t>() == 1 ? 0 : 1;
}
