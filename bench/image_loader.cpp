// SPDX-License-Identifier: Apache-2.0
// Images per second of a loader over a folder of JPEG files: decode, resize with antialias, (crop,)
// convert, normalise, batches of 32. bench/compare_images runs it in turns with PyTorch's loader.
// --train trains a small net on the batches and prints how much of the time it waited for them.
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace {

using namespace tandem;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: bench_images FOLDER [--height 224] [--width 0] [--workers 2] [--seconds 3] [--scaled]\n"
    "                           [--turns | --train [--repeat] | --dump FILE]\n"
    "  --width 0     the shorter side gets --height, then a square is cut from the middle\n"
    "  --scaled      decode no larger than the resize needs (in the DCT domain)\n"
    "  --turns       a round for each line of stdin, a line of JSON each\n"
    "  --train       train a small net, print the share of time it waited for data\n"
    "  --repeat      epochs flow into each other (repeat()), so only the first batch of all is "
    "late\n"
    "  --dump FILE   write the first image's numbers and stop\n";

struct Options {
  std::string folder, dump;
  int64_t height = 224, width = 0, workers = 2, batch = 32;
  double seconds = 3;
  bool scaled = false, turns = false, train = false, repeat = false;
};

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto number = [&](auto& v) {
      if (i + 1 < argc) v = static_cast<std::decay_t<decltype(v)>>(std::strtod(argv[++i], nullptr));
    };
    if (a == "--height")
      number(o.height);
    else if (a == "--width")
      number(o.width);
    else if (a == "--workers")
      number(o.workers);
    else if (a == "--seconds")
      number(o.seconds);
    else if (a == "--scaled")
      o.scaled = true;
    else if (a == "--turns")
      o.turns = true;
    else if (a == "--train")
      o.train = true;
    else if (a == "--repeat")
      o.repeat = true;
    else if (a == "--dump" && i + 1 < argc)
      o.dump = argv[++i];
    else if (a.rfind("--", 0) != 0 && o.folder.empty())
      o.folder = a;
    else
      return false;
  }
  return !o.folder.empty() && o.height > 0;
}

struct Files {
  std::vector<std::string> files;
  io::ReadImageOptions read;
  std::shared_ptr<const data::Transform> transform;

  explicit Files(const Options& o) {
    for (const auto& e : std::filesystem::directory_iterator(o.folder))
      if (e.path().extension() == ".jpg") files.push_back(e.path().string());
    std::sort(files.begin(), files.end());
    std::vector<data::Transform> t;
    if (o.width == 0) {
      t = {data::Resize({o.height}), data::CenterCrop({o.height})};
    } else {
      t = {data::Resize({o.height, o.width})};
    }
    t.push_back(data::ToDtype(DType::f32, true));
    t.push_back(data::Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}));
    transform = std::make_shared<const data::Transform>(data::Compose(std::move(t)));
    if (o.scaled) {
      read.min_height = o.height;
      read.min_width = o.width ? o.width : o.height;
    }
  }
  int64_t size() const { return static_cast<int64_t>(files.size()); }
  data::Example get(int64_t i) const {
    return {(*transform)(io::read_image(files[static_cast<size_t>(i)], read)), tensor(i % 10)};
  }
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Whole epochs until the time is up: images per second.
double round_of(data::DataLoader<Files>& loader, double seconds) {
  const auto begin = Clock::now();
  int64_t n = 0;
  while (since(begin) < seconds)
    for (const auto& [x, y] : loader) n += x.size(0);
  return static_cast<double>(n) / since(begin);
}

/// Two convolutions, pooling and a linear layer: a net that is fast compared with its data.
void train_net(const Options& o, const Files& files) {
  manual_seed(0);
  nn::Sequential net(nn::Conv2d(3, 16, 3, {.stride = 2, .padding = 1}), nn::ReLU(),
                     nn::Conv2d(16, 32, 3, {.stride = 2, .padding = 1}), nn::ReLU(),
                     nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(32, 10));
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-3});
  auto images = data::pipeline(files, {.seed = 0}, "JPEG files").shuffle();
  if (o.repeat) images = images.repeat();
  auto batches = images.batch(o.batch, {.drop_last = true}).prefetch({.workers = o.workers});
  double waited = 0, seconds = 0;
  int64_t steps = 0;
  const auto begin = Clock::now();
  for (int64_t epoch = 0; since(begin) < o.seconds; ++epoch) {
    for (const auto& [x, y] : batches) {
      optimizer.zero_grad();
      cross_entropy(net(x), y).backward();
      optimizer.step();
      ++steps;
      if (o.repeat && since(begin) >= o.seconds) break;
    }
    const data::RunStats s = batches.stats();
    waited += s.waited;
    seconds += s.seconds;
    print("epoch {}: waited {:.2f} % of {:.2f} s for data, {} worker(s)\n", epoch, 100 * s.stall(),
          s.seconds, s.workers);
  }
  print("waited {:.2f} % of the time for data, {:.1f} images/s\n", 100 * waited / seconds,
        static_cast<double>(steps * o.batch) / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  init();
  const Files files(o);
  if (!o.dump.empty()) {
    const std::vector<float> x = files.get(0).x.to_vector<float>();
    std::ofstream(o.dump, std::ios::binary)
        .write(reinterpret_cast<const char*>(x.data()),
               static_cast<std::streamsize>(x.size() * sizeof(float)));
    return 0;
  }
  if (o.train) {
    train_net(o, files);
    return 0;
  }
  data::DataLoader loader(
      files, {.batch_size = o.batch, .shuffle = true, .num_workers = o.workers, .seed = 0});
  if (o.turns) {
    for (std::string line; std::getline(std::cin, line);) {
      print("{{\"images_per_second\": {}}}\n", round_of(loader, o.seconds));
      std::fflush(stdout);
    }
    return 0;
  }
  print("{} images, {} workers, {}: {:.0f} images/s\n", files.size(), o.workers,
        o.scaled ? "scaled while decoding" : "decoded whole", round_of(loader, o.seconds));
  return 0;
}
