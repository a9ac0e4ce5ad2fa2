// SPDX-License-Identifier: Apache-2.0
// Page: one self-contained HTML file of facts, charts, tables, matrices, images and parallel
// coordinates, for reports of runs, comparisons and searches. Charts can be smoothed and set to a
// logarithmic scale; nothing is loaded from anywhere.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::runs {

/// One line of a chart; NaN is a gap.
struct Series {
  std::string name;
  std::vector<double> x, y;
};

class TD_API Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}
  /// Labels and values in a grid.
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  void note(const std::string& text);
  /// Left out when no series has a finite point.
  void chart(const std::string& title, const std::string& x_name,
             const std::vector<Series>& series);
  void table(const std::string& title, const std::vector<std::string>& head,
             const std::vector<std::vector<std::string>>& rows);
  /// Counts [row: wanted][column: given].
  void matrix(const std::string& title, const std::vector<std::string>& labels,
              const std::vector<std::vector<double>>& counts);
  /// Values [row][column] as colours, NaN empty.
  void heat(const std::string& title, const std::vector<std::string>& rows,
            const std::vector<std::string>& columns,
            const std::vector<std::vector<double>>& values);
  struct Image {
    std::string png;  ///< bytes of a PNG file; empty: `text` in its place
    std::string text, caption;
  };
  void images(const std::string& title, const std::vector<Image>& images);
  /// A text as it is, such as a file.
  void listing(const std::string& title, const std::string& text);
  struct Axis {
    std::string name;
    bool log = false;
    std::vector<std::string> words = {};  ///< of a choice: values are their places
  };
  /// A line per row of values; coloured by the last axis.
  void parallel(const std::string& title, const std::vector<Axis>& axes,
                const std::vector<std::vector<double>>& lines);

  std::string html() const;

 private:
  void add(io::Json::Object part) { parts_.push_back(std::move(part)); }
  std::string title_;
  io::Json::Array parts_;
};

}  // namespace tandem::runs
