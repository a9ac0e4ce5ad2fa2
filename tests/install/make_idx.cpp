// SPDX-License-Identifier: Apache-2.0
// Writes a tiny data set in MNIST's format (IDX): make_idx FOLDER COUNT. Image i shows a bright
// square whose position depends on its label i % 10, so a net can learn it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void put_u32(std::vector<unsigned char>& out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<unsigned char>(v >> shift));
}

static bool write(const std::string& path, const std::vector<unsigned char>& bytes) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  if (!f) return false;
  const bool whole = std::fwrite(bytes.data(), 1, bytes.size(), f) == bytes.size();
  return std::fclose(f) == 0 && whole;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  const auto count = static_cast<uint32_t>(std::atoi(argv[2]));
  for (const std::string set : {"train", "t10k"}) {
    std::vector<unsigned char> images, labels;
    put_u32(images, 0x803);
    put_u32(labels, 0x801);
    for (const uint32_t n : {count, 28u, 28u}) put_u32(images, n);
    put_u32(labels, count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t label = i % 10, top = 2 + 12 * (label / 5), left = 1 + 5 * (label % 5);
      labels.push_back(static_cast<unsigned char>(label));
      for (uint32_t y = 0; y < 28; ++y)
        for (uint32_t x = 0; x < 28; ++x) {
          const bool inside = y >= top && y < top + 10 && x >= left && x < left + 5;
          images.push_back(static_cast<unsigned char>(inside ? 200 + (i * 7 + y * x) % 56 : 0));
        }
    }
    if (!write(folder + "/" + set + "-images-idx3-ubyte", images)) return 1;
    if (!write(folder + "/" + set + "-labels-idx1-ubyte", labels)) return 1;
  }
}
