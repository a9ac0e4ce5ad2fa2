// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/run/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

using namespace compiler;

namespace {

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

constexpr const char* kStyle = R"(
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1180px;padding:0 1em;color:#1d2430}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;padding:3px 8px;border-bottom:1px solid #e3e6ea;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;background:#f6f7f9;border:1px solid #d9dde3}
svg rect:hover{stroke:#111;stroke-width:1.5}
code{font-size:12px}.facts b{font-variant-numeric:tabular-nums}
)";

// Calm colours by the step that makes a buffer: neighbours differ.
std::string colour(int k) {
  static const char* const kColours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2",
                                         "#e15759", "#edc948", "#9c755f", "#86a8c9", "#8cd17d"};
  return kColours[static_cast<size_t>(k) % std::size(kColours)];
}

std::string bytes_text(size_t n) {
  if (n >= size_t{1} << 20) return fmt::format("{:.2f} MB", static_cast<double>(n) / 1048576.0);
  if (n >= 1024) return fmt::format("{:.1f} KB", static_cast<double>(n) / 1024.0);
  return fmt::format("{} B", n);
}

std::string memory_drawing(const Executable& e) {
  const Lowered& l = e.lowered();
  const double width = 1100, height = 380;
  const double steps = std::max<double>(1, static_cast<double>(l.steps.size()));
  const double top = std::max<double>(1, static_cast<double>(l.arena_bytes));
  std::string s = fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Arena over the steps\">\n",
      width, height + 24);
  for (const Block& b : l.buffers) {
    if (b.base != Base::arena || b.same_as != kNone || b.first == kNone || b.bytes == 0) continue;
    const double x = width * b.first / steps, w = width * (b.last - b.first + 1) / steps;
    const double h = height * static_cast<double>(b.bytes) / top;
    const double y = height - height * static_cast<double>(b.offset) / top - h;
    const Step& made = l.steps[static_cast<size_t>(b.first)];
    s += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
        "fill-opacity=\"0.8\"><title>{} of {}{}, steps {} to {}, at {}</title></rect>\n",
        x, y, std::max(w, 0.6), std::max(h, 0.4), colour(b.first), bytes_text(b.bytes),
        escaped(made.name), made.scope ? " in " + escaped(scope_path(made.scope)) : "", b.first,
        b.last, b.offset);
  }
  const double peak = width * (l.peak_step + 0.5) / steps;
  s += fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.0f}\" stroke=\"#111\" "
      "stroke-dasharray=\"3 3\"/>\n"
      "<text x=\"4\" y=\"{2:.0f}\" font-size=\"12\">step 0</text>\n"
      "<text x=\"{3:.0f}\" y=\"{2:.0f}\" font-size=\"12\" text-anchor=\"end\">step {4}</text>\n"
      "<text x=\"{0:.1f}\" y=\"{2:.0f}\" font-size=\"12\" "
      "text-anchor=\"middle\">peak</text>\n</svg>\n",
      peak, height, height + 17, width - 4, l.steps.size() - 1);
  return s;
}

std::string peak_rows(const Executable& e) {
  const Lowered& l = e.lowered();
  std::string s;
  for (const Block* b : alive_at_peak(l)) {
    const Step& made = l.steps[static_cast<size_t>(b->first)];
    s += fmt::format(
        "<tr><td class=n>{}</td><td>{}</td><td>{}</td><td class=n>{}</td><td "
        "class=n>{}</td></tr>\n",
        bytes_text(b->bytes), escaped(made.name), escaped(scope_path(made.scope)), b->first,
        b->last);
  }
  return s;
}

// What a memory limit made the plan recompute, by layer.
std::string recomputed_part(const Executable& e) {
  const Program& p = e.program();
  if (p.recomputed.empty()) return "";
  size_t all = 0;
  std::string rows;
  for (const Program::Recomputed& r : p.recomputed) {
    all += r.bytes;
    rows += fmt::format("<tr><td class=n>{}</td><td>{}</td><td>{}</td></tr>\n", bytes_text(r.bytes),
                        escaped(r.name), escaped(scope_path(r.scope)));
  }
  std::string s = fmt::format(
      "<h2>Recomputed</h2>\n<p class=facts><b>{}</b> values of <b>{}</b>"
      " are not kept until the backward pass reads them.",
      p.recomputed.size(), bytes_text(all));
  if (p.memory_limit)
    s += fmt::format(" The limit is <b>{}</b>; without it one call holds <b>{}</b>.",
                     bytes_text(p.memory_limit), bytes_text(p.peak_unlimited));
  return s + "</p>\n<table><tr><th>size</th><th>made by</th><th>layer</th></tr>\n" + rows +
         "</table>\n";
}

// Rows of 16-bit floats that compute in f32, by op and layer.
std::string widened_part(const Executable& e) {
  const std::vector<Program::Widened>& all = e.program().widened;
  if (all.empty()) return "";
  std::string s = fmt::format(
      "<h2>Computed in f32</h2>\n<p class=facts><b>{}</b> rows of 16-bit floats compute in f32 and "
      "round their results: no kernel of this processor is faster with them.</p>\n"
      "<table><tr><th>what</th><th>layer</th></tr>\n",
      all.size());
  for (const Program::Widened& w : all)
    s += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escaped(w.name),
                     escaped(scope_path(w.scope)));
  return s + "</table>\n";
}

std::string step_rows(const Executable& e) {
  const Lowered& l = e.lowered();
  std::string s;
  for (size_t k = 0; k < l.steps.size(); ++k) {
    const Step& step = l.steps[k];
    std::string shapes;
    for (int o : step.out)
      if (o != kNone) {
        const Place& q = l.places[static_cast<size_t>(o)];
        shapes += (shapes.empty() ? "" : ", ") + Spec(q.dtype, q.shape).to_string();
      }
    s += fmt::format(
        "<tr><td class=n>{}</td><td>{}{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>\n",
        k, step.op ? "" : "loop: ", escaped(step.name) + (step.recomputed ? " (recomputed)" : ""),
        escaped(shapes), escaped(scope_path(step.scope)),
        step.loc.file ? escaped(fmt::format("{}:{}", step.loc.file, step.loc.line)) : "");
  }
  return s;
}

}  // namespace

std::string html_report(const Executable& e, const std::string& title) {
  std::string s = fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{0}</title>\n<meta "
      "name=viewport content=\"width=device-width,initial-scale=1\"><style>{1}</style></head>\n"
      "<body><h1>{0}</h1>\n",
      escaped(title), kStyle);
  s += fmt::format(
      "<p class=facts><b>{}</b> steps. Arena <b>{}</b>; no plan can be smaller than <b>{}</b>. One "
      "call holds at most <b>{}</b>.</p>\n",
      e.num_steps(), bytes_text(e.arena_bytes()), bytes_text(e.lower_bound()),
      bytes_text(e.peak_bytes()));
  s += "<h2>Memory over the steps</h2>\n" + memory_drawing(e);
  s += fmt::format(
      "<h2>Alive at the peak (step {})</h2>\n<table><tr><th>size</th><th>made by</th><th>layer</th>"
      "<th>from step</th><th>to step</th></tr>\n{}</table>\n",
      e.lowered().peak_step, peak_rows(e));
  s += recomputed_part(e) + widened_part(e);
  s += "<h2>Steps</h2>\n<table><tr><th>step</th><th>what</th><th>gives</th><th>layer</th><th>line"
       "</th></tr>\n" +
       step_rows(e) + "</table>\n</body></html>\n";
  return s;
}

}  // namespace tandem
