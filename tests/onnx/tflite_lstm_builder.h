// SPDX-License-Identifier: Apache-2.0
// A full-integer LSTM as a .tflite file.
#pragma once

#include <cmath>

#include "tests/onnx/tflite_builder.h"

namespace tandem::onnx {

struct IntegerLstmFile {
  bool coupled = false, peepholes = false, projected = false;
  int32_t peephole_size = 3;
};

/// Of two samples, four steps, five inputs and three cells.
inline std::string tflite_integer_lstm(const IntegerLstmFile& o) {
  TfliteFile f;
  constexpr int32_t kSamples = 2, kSteps = 4, kInputs = 5, kCells = 3;
  const auto codes = [](int32_t n, int factor, int range) {
    std::vector<int> v;
    for (int32_t i = 0; i < n; ++i)
      v.push_back((i * factor + factor / 3) % (2 * range + 1) - range);
    return v;
  };
  const auto weight = [&](int32_t rows, int32_t columns, int factor) {
    const std::vector<int> v = codes(rows * columns, factor, 127);
    return f.constant<int8_t>("w" + std::to_string(factor), TfliteFile::i8, {rows, columns},
                              {v.begin(), v.end()}, {0.001f * static_cast<float>(factor)}, {0});
  };
  const auto bias = [&](int32_t n, int factor) {
    const std::vector<int> v = codes(n, factor * 1000, 9000);
    return f.constant<int32_t>("b" + std::to_string(factor), TfliteFile::i32, {n},
                               {v.begin(), v.end()}, {1e-4f}, {0});
  };
  std::vector<int32_t> in{f.tensor("x", TfliteFile::i8, {kSamples, kSteps, kInputs}, {0.03f}, {7})};
  const int first = o.coupled ? 1 : 0;
  for (const int32_t columns : {kInputs, kCells})
    for (int g = 0; g < 4; ++g)
      in.push_back(g < first ? -1 : weight(kCells, columns, 11 + 6 * g + columns));
  for (int g = 0; g < 3; ++g) {
    const std::vector<int> v = codes(o.peephole_size, 7001 + 2000 * g, 32000);
    in.push_back(g < first || !o.peepholes
                     ? -1
                     : f.constant<int16_t>("p", TfliteFile::i16, {o.peephole_size},
                                           {v.begin(), v.end()}, {3e-5f}, {0}));
  }
  for (int g = 0; g < 4; ++g) in.push_back(g < first ? -1 : bias(kCells, 3 + g));
  in.push_back(o.projected ? weight(kCells, kCells, 9) : -1);
  in.push_back(o.projected ? bias(kCells, 13) : -1);
  const int h = f.tensor("h", TfliteFile::i8, {kSamples, kCells}, {0.01f}, {-6});
  const int c = f.tensor("c", TfliteFile::i16, {kSamples, kCells}, {std::ldexp(1.0f, -11)}, {0});
  f.variable(h);
  f.variable(c);
  in.insert(in.end(), {h, c, -1, -1, -1, -1});
  const int y = f.tensor("y", TfliteFile::i8, {kSamples, kSteps, kCells}, {0.01f}, {-6});
  io::FlatWriter options;
  options.add<int8_t>(0, 4);  // tanh
  options.add<float>(1, o.peepholes ? 2.5f : 0.0f);
  std::vector<int32_t> between;
  for (int i = 0; i < 4; ++i) between.push_back(f.tensor("gate", TfliteFile::i8, {}, {1.0f}, {0}));
  between.push_back(o.projected ? f.tensor("hidden", TfliteFile::i8, {}, {0.008f}, {5})
                                : f.tensor("hidden", TfliteFile::i8, {}, {0.01f}, {-6}));
  f.op(44, in, {y}, std::move(options));
  f.intermediates(between);
  f.graph("main", {in[0]}, {y});
  return f.bytes();
}

}  // namespace tandem::onnx
