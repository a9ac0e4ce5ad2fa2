// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tandem/runs/run_record.h"

namespace tandem::runs {
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

constexpr int kColours[] = {36, 33, 32, 35, 31, 34};
std::string coloured(size_t series, std::string_view text) {
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[series % 6], text);
}

// Characters of 2 x 4 dots each.
class Canvas {
 public:
  Canvas(int wide, int high) : wide_(wide), high_(high), cells_(static_cast<size_t>(wide * high)) {}
  int columns() const { return 2 * wide_; }  ///< of dots
  int rows() const { return 4 * high_; }

  void dot(int u, int v, size_t series) {
    // The dots of a character, by column and row: Unicode's braille patterns.
    constexpr uint32_t kDots[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    if (u < 0 || v < 0 || u >= columns() || v >= rows()) return;
    Cell& c = at(v / 4, u / 2);
    c.dots |= kDots[u % 2][v % 4];
    c.series = series;
  }
  void line(int u0, int v0, int u, int v, size_t series) {
    const int n = std::max({std::abs(u - u0), std::abs(v - v0), 1});
    for (int t = 0; t <= n; ++t) dot(u0 + (u - u0) * t / n, v0 + (v - v0) * t / n, series);
  }
  // The name of the curve that ends here, or beside another one's.
  void name(int u, int v, char name) {
    for (int c = std::clamp(u / 2, 0, wide_ - 1); c >= 0; --c)
      if (Cell& cell = at(std::clamp(v / 4, 0, high_ - 1), c); !cell.name) {
        cell.name = name;
        return;
      }
  }
  std::string row(int r, bool colours) const {
    std::string out;
    for (int c = 0; c < wide_; ++c) {
      const Cell& cell = cells_[static_cast<size_t>(r * wide_ + c)];
      if (cell.name) {
        out += cell.name;
      } else if (cell.dots == 0) {
        out += ' ';
      } else {
        const std::string character = utf8(0x2800 + cell.dots);
        out += colours ? coloured(cell.series, character) : character;
      }
    }
    return out;
  }

 private:
  struct Cell {
    uint32_t dots = 0;
    size_t series = 0;
    char name = 0;  ///< in place of the dots
  };
  Cell& at(int row, int column) { return cells_[static_cast<size_t>(row * wide_ + column)]; }

  int wide_, high_;
  std::vector<Cell> cells_;
};

struct Place {
  int u = -1, v = 0;
};

// Draws the curve, interrupted where it is not finite; gives its last point, u < 0 where it has
// none.
Place draw(Canvas& canvas, const Series& s, size_t k, const Range& x, const Range& y) {
  Place last;
  bool pen = false;
  for (size_t i = 0; i < s.x.size(); ++i) {
    if (!std::isfinite(s.y[i])) {
      pen = false;
      continue;
    }
    const int u = static_cast<int>(std::lround(x.place(s.x[i]) * (canvas.columns() - 1)));
    const int v = static_cast<int>(std::lround((1 - y.place(s.y[i])) * (canvas.rows() - 1)));
    if (pen)
      canvas.line(last.u, last.v, u, v, k);
    else
      canvas.dot(u, v, k);
    last = {u, v};
    pen = true;
  }
  return last;
}

std::string legend(const std::vector<Series>& series, bool colours) {
  std::string out;
  for (size_t k = 0; k < series.size(); ++k)
    out += colours ? fmt::format("  {} {}\n", coloured(k, "──"), series[k].name)
                   : fmt::format("  {} {}\n",
                                 k < 26 ? std::string(1, static_cast<char>('a' + k)) : "--",
                                 series[k].name);
  return out;
}

}  // namespace

std::string terminal_plot(const std::string& title, const std::vector<Series>& series, int columns,
                          int rows, bool colours) {
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
  Canvas canvas(wide, high);
  for (size_t k = 0; k < series.size(); ++k) {
    const Place last = draw(canvas, series[k], k, x, y);
    if (!colours && series.size() > 1 && last.u >= 0 && k < 26)
      canvas.name(last.u, last.v, static_cast<char>('a' + k));
  }
  std::string out = title + "\n";
  for (int r = 0; r < high; ++r) {
    const bool marked = r == 0 || r == high - 1 || r == high / 2;
    const double at = y.high - (y.high - y.low) * r / (high - 1);
    out += marked ? fmt::format("{:>{}.4g} ", at, label) : fmt::format("{:>{}} ", "", label);
    out += canvas.row(r, colours);
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += "\n";
  }
  const std::string from = fmt::format("{:g}", x.low), to = fmt::format("{:g}", x.high);
  out += fmt::format("{:>{}} {}{:>{}}\n", "", label, from, to,
                     std::max<int>(wide - static_cast<int>(from.size()), 1));
  return series.size() > 1 ? out + legend(series, colours) : out;
}

}  // namespace tandem::runs
