// SPDX-License-Identifier: Apache-2.0
// The report of a quantised model as a page: what it costs, layer by layer, and where the codes of
// its activations lie.
#include <fmt/core.h>

#include <algorithm>

#include "tandem/recipe/quantize.h"
#include "tandem/runs/page.h"

namespace tandem::recipe {
namespace {

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

void figures(runs::Page& page, const QuantizeReport& r) {
  const QuantizeScore& s = r.score;
  std::vector<std::pair<std::string, std::string>> all;
  if (s.before) {
    all.emplace_back("accuracy in floating point", percent(*s.before));
    all.emplace_back("accuracy quantised", percent(*s.after));
    all.emplace_back("difference", fmt::format("{:+.2f} points", 100 * (*s.after - *s.before)));
  }
  if (s.samples > 0) {
    all.emplace_back("evaluated on", fmt::format("{} samples", s.samples));
    all.emplace_back("same largest output", percent(s.agreement));
    all.emplace_back("signal to error of the output", fmt::format("{:.1f} dB", s.sqnr));
  }
  const auto before = static_cast<double>(r.weight_bytes_before),
             after = static_cast<double>(r.weight_bytes_after);
  all.emplace_back("weights before", fmt::format("{} bytes", r.weight_bytes_before));
  all.emplace_back("weights after", fmt::format("{} bytes, {:+.1f} %", r.weight_bytes_after,
                                                100 * (after / before - 1)));
  all.emplace_back("file", fmt::format("{} bytes", r.file_bytes));
  all.emplace_back("ranges", r.method);
  const auto codes = std::count_if(r.layers.begin(), r.layers.end(),
                                   [](const quant::LayerFigures& l) { return l.quantised; });
  all.emplace_back("layers on codes", fmt::format("{} of {}", codes, r.layers.size()));
  page.facts(all);
}

void layer_table(runs::Page& page, const QuantizeReport& r) {
  std::vector<std::vector<std::string>> rows;
  runs::Series loss{"accuracy", {}, {}}, error{"signal to error", {}, {}};
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const quant::LayerFigures& l = r.layers[i];
    const double alone = i < r.accuracy.size() ? r.accuracy[i] : NAN;
    rows.push_back({l.name, l.row, l.quantised ? "codes" : "floating point",
                    i < r.why.size() ? r.why[i] : "",
                    std::isnan(alone) ? "" : fmt::format("{:.2f} %", 100 * alone),
                    l.output_sqnr > 0 ? fmt::format("{:.1f} dB", l.output_sqnr) : "",
                    l.quantised ? fmt::format("{:.1f} dB", l.weight_sqnr) : "",
                    fmt::format("{}", l.float_bytes), fmt::format("{}", l.bytes)});
    loss.x.push_back(static_cast<double>(i + 1));
    loss.y.push_back(100 * alone);
    error.x.push_back(static_cast<double>(i + 1));
    error.y.push_back(l.output_sqnr);
  }
  page.table("Layers",
             {"layer", "row", "computes on", "why", "accuracy, alone", "output dB, alone",
              "weight dB", "bytes before", "bytes after"},
             rows);
  std::string note = "Alone: when this layer is quantised and all others are not";
  if (r.alone.before)
    note += fmt::format("; on {} samples, {} of which are right in floating point", r.alone.samples,
                        percent(*r.alone.before));
  page.note(note + ".");
  constexpr size_t kFew = 8;  // a table of them says it all
  if (r.layers.size() <= kFew) return;
  page.chart("accuracy with one layer quantised (%)", "layer", {loss});
  page.chart("signal to error with one layer quantised (dB)", "layer", {error});
}

// The distribution, and the range that codes cover as a box of its height.
void histogram(runs::Page& page, const quant::RangeFigures& f) {
  runs::Series counts{"values", {}, {}};
  double total = 0, most = 0;
  for (const double c : f.counts) total += c;
  if (total == 0) return;
  const double width = (f.seen.high - f.seen.low) / static_cast<double>(f.counts.size());
  for (size_t i = 0; i < f.counts.size(); ++i) {
    const double share = 100 * f.counts[i] / total;
    most = std::max(most, share);
    counts.x.push_back(f.seen.low + (static_cast<double>(i) + 0.5) * width);
    counts.y.push_back(share);
  }
  const double low = f.range.low, high = f.range.high;
  const runs::Series box{"range of the codes", {low, low, high, high}, {0, most, most, 0}};
  page.chart(f.name + " (% of values)", "value", {counts, box});
}

}  // namespace

std::string QuantizeReport::html() const {
  runs::Page page("Quantisation: " + out);
  figures(page, *this);
  layer_table(page, *this);
  for (const quant::RangeFigures& f : ranges) histogram(page, f);
  page.listing("File", file);
  return page.html();
}

}  // namespace tandem::recipe
