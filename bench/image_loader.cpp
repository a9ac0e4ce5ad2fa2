// SPDX-License-Identifier: Apache-2.0
// Images per second of a loader over a folder of JPEG files: decode, shorter side to 224, centre
// crop, f32, normalise, batches of 32. Usage: bench_images FOLDER [WORKERS [whole|scaled]]
#include <tandem/tandem.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace {

using namespace tandem;

struct Files {
  std::vector<std::string> files;
  bool scaled;
  data::Transform transform =
      data::Compose({data::Resize({224}), data::CenterCrop({224}), data::ToDtype(DType::f32, true),
                     data::Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})});
  int64_t size() const { return static_cast<int64_t>(files.size()); }
  Tensor get(int64_t i) const {
    const int64_t least = scaled ? 224 : 0;
    return transform(
        io::read_image(files[static_cast<size_t>(i)], {.min_height = least, .min_width = least}));
  }
};

}  // namespace

int main(int argc, char** argv) {
  init();
  if (argc < 2) {
    print("usage: bench_images FOLDER [WORKERS [whole|scaled]]\n");
    return 2;
  }
  Files files;
  for (const auto& e : std::filesystem::directory_iterator(argv[1]))
    if (e.path().extension() == ".jpg") files.files.push_back(e.path().string());
  files.scaled = argc > 3 && std::strcmp(argv[3], "scaled") == 0;
  const int64_t workers = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 2;
  data::DataLoader loader(files,
                          {.batch_size = 32, .shuffle = true, .num_workers = workers, .seed = 0});
  double best = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    int64_t n = 0;
    for (const Tensor& x : loader) n += x.size(0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(n) / took.count());
  }
  print("{} images, {} workers, {}: {:.0f} images/s\n", files.size(), workers,
        files.scaled ? "scaled while decoding" : "decoded whole", best);
  return 0;
}
