// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tandem/train/run_record.h"

namespace tandem::train {
namespace {

std::string utf8(uint32_t code) {  // of the braille block: three bytes
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
          static_cast<char>(0x80 | (code & 63))};
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  void widen() {
    if (low == high) {
      const double d = low == 0 ? 1 : std::abs(low) * 0.1;
      low -= d;
      high += d;
    }
  }
  double place(double v) const { return (v - low) / (high - low); }
};

}  // namespace

std::string terminal_plot(const std::string& title, const std::vector<Series>& series, int columns,
                          int rows, bool colours) {
  // Dots of a letter, by column and row: Unicode's braille patterns.
  constexpr uint32_t kDots[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  constexpr int kColours[] = {36, 33, 32, 35, 31, 34};
  Range x, y;
  for (const Series& s : series)
    for (size_t i = 0; i < s.x.size(); ++i)
      if (std::isfinite(s.y[i])) {
        x.add(s.x[i]);
        y.add(s.y[i]);
      }
  if (!(x.low <= x.high)) return title + ": nothing to draw\n";
  x.widen();
  y.widen();
  const int label = 10, wide = std::max(columns - label - 1, 10), high = std::max(rows, 3);
  struct Cell {
    uint32_t dots = 0;
    size_t series = 0;
    char letter = 0;  ///< in place of the dots: the name of the curve that ends here
  };
  std::vector<Cell> cells(static_cast<size_t>(wide * high));
  auto dot = [&](int u, int v, size_t k) {
    if (u < 0 || v < 0 || u >= 2 * wide || v >= 4 * high) return;
    Cell& c = cells[static_cast<size_t>(v / 4 * wide + u / 2)];
    c.dots |= kDots[u % 2][v % 4];
    c.series = k;
  };
  for (size_t k = 0; k < series.size(); ++k) {
    const Series& s = series[k];
    bool pen = false;
    int u0 = -1, v0 = 0;  // nothing is drawn yet
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!std::isfinite(s.y[i])) {
        pen = false;
        continue;
      }
      const int u = static_cast<int>(std::lround(x.place(s.x[i]) * (2 * wide - 1)));
      const int v = static_cast<int>(std::lround((1 - y.place(s.y[i])) * (4 * high - 1)));
      const int n = pen ? std::max({std::abs(u - u0), std::abs(v - v0), 1}) : 1;
      for (int t = pen ? 0 : n; t <= n; ++t)
        dot(pen ? u0 + (u - u0) * t / n : u, pen ? v0 + (v - v0) * t / n : v, k);
      u0 = u;
      v0 = v;
      pen = true;
    }
    if (!colours && series.size() > 1 && u0 >= 0 && k < 26)
      for (int c = std::clamp(u0 / 2, 0, wide - 1); c >= 0; --c)  // beside another one's letter
        if (Cell& cell = cells[static_cast<size_t>(std::clamp(v0 / 4, 0, high - 1) * wide + c)];
            !cell.letter) {
          cell.letter = static_cast<char>('a' + k);
          break;
        }
  }
  std::string out = title + "\n";
  for (int r = 0; r < high; ++r) {
    const bool marked = r == 0 || r == high - 1 || r == high / 2;
    const double at = y.high - (y.high - y.low) * r / (high - 1);
    out += marked ? fmt::format("{:>{}.4g} ", at, label) : fmt::format("{:>{}} ", "", label);
    for (int c = 0; c < wide; ++c) {
      const Cell& cell = cells[static_cast<size_t>(r * wide + c)];
      if (cell.letter) {
        out += cell.letter;
        continue;
      }
      if (cell.dots == 0) {
        out += ' ';
        continue;
      }
      const std::string letter = utf8(0x2800 + cell.dots);
      out += colours ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[cell.series % 6], letter) : letter;
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += "\n";
  }
  const std::string from = fmt::format("{:g}", x.low), to = fmt::format("{:g}", x.high);
  out += fmt::format("{:>{}} {}{:>{}}\n", "", label, from, to,
                     std::max<int>(wide - static_cast<int>(from.size()), 1));
  if (series.size() > 1)
    for (size_t k = 0; k < series.size(); ++k)
      out += colours ? fmt::format("  \x1b[{}m──\x1b[0m {}\n", kColours[k % 6], series[k].name)
                     : fmt::format("  {} {}\n",
                                   k < 26 ? std::string(1, static_cast<char>('a' + k)) : "--",
                                   series[k].name);
  return out;
}

}  // namespace tandem::train
