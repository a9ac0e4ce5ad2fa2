// SPDX-License-Identifier: Apache-2.0
// Drawings are SVG made here; the page runs no code from elsewhere and opens from disk.
#include "tandem/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

constexpr const char* kColours[] = {"#4477aa", "#cc6677", "#ddcc77", "#117733", "#88ccee",
                                    "#aa4499", "#999999", "#332288", "#ee8866", "#44aa99"};

std::string escape(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

// Bytes over the step, one area per memory category.
std::string timeline(const Workload& w) {
  constexpr double kWide = 900, kHigh = 260;
  if (w.memory.timeline.empty()) return "";
  double most = 0;
  for (const Moment& m : w.memory.timeline) most = std::max(most, m.held.total());
  const size_t n = w.memory.timeline.size();
  const auto x = [&](size_t i) {
    return kWide * static_cast<double>(i) / static_cast<double>(std::max<size_t>(1, n - 1));
  };
  std::string s =
      fmt::format("<svg id=\"timeline\" viewBox=\"0 0 {} {}\" role=\"img\">", kWide, kHigh + 20);
  std::vector<double> base(n, 0);
  for (size_t c = 0; c < kMemoryCategories; ++c) {
    std::string up, down;
    bool any = false;
    for (size_t i = 0; i < n; ++i) {
      const double b = w.memory.timeline[i].held.bytes[c];
      any |= b > 0;
      down = fmt::format("{:.1f},{:.1f} ", x(i), kHigh * (1 - base[i] / most)) + down;
      base[i] += b;
      up += fmt::format("{:.1f},{:.1f} ", x(i), kHigh * (1 - base[i] / most));
    }
    if (any)
      s += fmt::format("<polygon points=\"{}{}\" fill=\"{}\"><title>{}</title></polygon>", up, down,
                       kColours[c], to_string(static_cast<MemoryCategory>(c)));
  }
  return s + fmt::format("<text x=\"4\" y=\"14\">{}</text></svg>", show(most, "B"));
}

// A quantity's parts side by side, with what each is; a single part is opened.
std::string stack(const Quantity& q) {
  if (q.how == Quantity::How::sum && q.parts.size() == 1 && q.parts[0].how == Quantity::How::sum)
    return stack(q.parts[0]);
  constexpr double kWide = 900;
  std::string s = fmt::format("<svg class=\"stack\" viewBox=\"0 0 {} 32\">", kWide);
  std::string key = "<p class=\"key\">";
  double at = 0;
  size_t k = 0;
  for (const Quantity& p : q.parts) {
    const double share = p.value / std::max(q.value, 1e-300), wide = kWide * share;
    const char* colour = kColours[k++ % std::size(kColours)];
    s += fmt::format(
        "<rect x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"30\" fill=\"{}\"><title>{} "
        "{}</title></rect>",
        at, std::max(0.0, wide), colour, escape(p.label), show(p));
    if (p.value > 0)
      key += fmt::format("<span style=\"background:{}\"></span>{} {} ({:.0f} %)", colour,
                         escape(p.label), show(p), 100 * share);
    at += wide;
  }
  return s + "</svg>" + key + "</p>";
}

std::string front(const std::vector<Ranked>& all) {
  constexpr double kWide = 900, kHigh = 320;
  double t0 = INFINITY, t1 = 0, u0 = INFINITY, u1 = 0;
  for (const Ranked& k : all) {
    if (!k.fits) continue;
    t0 = std::min(t0, k.seconds);
    t1 = std::max(t1, k.seconds);
    u0 = std::min(u0, k.usd);
    u1 = std::max(u1, k.usd);
  }
  std::string s = fmt::format("<svg id=\"servers\" viewBox=\"0 0 {} {}\">", kWide, kHigh + 30);
  const auto place = [](double v, double lo, double hi, double wide) {
    return hi > lo ? std::log(v / lo) / std::log(hi / lo) * wide : wide / 2;
  };
  s += fmt::format(
      "<path d=\"M10 4V{0}H{1}\" fill=\"none\" stroke=\"#888\"/><text x=\"16\" y=\"14\">cost "
      "{2}</text><text x=\"{1}\" y=\"{3}\" text-anchor=\"end\">time {4}</text>",
      kHigh + 2, kWide - 10, show(u1, "USD"), kHigh - 4, show(t1, "s"));
  // Names keep clear of those already there.
  std::vector<std::array<double, 3>> names;
  const auto clear = [&](double x, double y, double wide) {
    for (const auto& n : names)
      if (std::abs(n[1] - y) < 13 && x < n[0] + n[2] && n[0] < x + wide) return false;
    names.push_back({x, y, wide});
    return true;
  };
  for (const Ranked& k : all) {
    if (!k.fits) continue;
    const double x = 20 + place(k.seconds, t0, t1, kWide - 160);
    const double y = 10 + (kHigh - 20) - place(k.usd, u0, u1, kHigh - 20);
    s += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{} x {}: {} in "
        "{}</title></circle>",
        x, y, k.pareto ? 6 : 4, k.pareto ? "#cc6677" : "#88ccee", k.n, escape(k.gpu),
        show(k.usd, "USD"), show(k.seconds, "s"));
    if (!k.pareto) continue;
    const double wide = 7.0 * static_cast<double>(k.gpu.size() + 4);
    for (double dy : {4.0, -9.0, 17.0, -22.0, 30.0})
      if (clear(x + 9, y + dy, wide)) {
        s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{} x {}</text>", x + 9, y + dy, k.n,
                         escape(k.gpu));
        break;
      }
  }
  return s + fmt::format(
                 "<text x=\"4\" y=\"{}\">time {} to {}, cost {} to {}, logarithmic; red: nothing "
                 "is both cheaper and faster</text></svg>",
                 kHigh + 24, show(t0, "s"), show(t1, "s"), show(u0, "USD"), show(u1, "USD"));
}

std::string tree(const Quantity& q, int level) {
  const std::string head =
      fmt::format("<b>{}</b> = {} <code>{}</code> <i>{}</i>", escape(q.label), escape(show(q)),
                  escape(q.key), q.how == Quantity::How::again ? "see there" : escape(q.why));
  if (q.parts.empty()) return "<div class=\"leaf\">" + head + "</div>";
  std::string s = fmt::format("<details{}><summary>{} <small>{}</small></summary>",
                              level == 0 ? "" : " open", head, words(q.how));
  for (const Quantity& p : q.parts) s += tree(p, level + 1);
  return s + "</details>";
}

// How memory and rate change with the batch.
std::string sensitivity(const Plan& p, const PlanRequest& r) {
  if (p.gpu.flops.empty()) return "<p>Of GPUs only.</p>";  // this machine: by its profile
  std::string s =
      "<table id=\"sensitivity\"><tr><th>batch per "
      "GPU</th><th>memory</th><th>step</th><th>rate</th><th>fits</th></tr>";
  const Workload& now = p.compiled ? p.compiled_work : p.eager_work;
  for (double f : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const auto b = static_cast<int64_t>(static_cast<double>(now.options.batch) * f);
    if (b < 1) continue;
    const Workload w = f == 1.0 ? now : workload_for(r, b, p.compiled, now.options.training);
    const Quantity m = memory_of(w, r, p.n, p.gpu.usable()), rate = throughput(w, r, p.gpu, p.n);
    s += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", b, show(m),
                     show(*find(rate, "time.step")), show(rate),
                     m.value <= p.gpu.usable() ? "yes" : "no");
  }
  return s +
         "</table><p>A row's figures: <code>--batch</code> (of all GPUs) and <code>--why</code> "
         "memory, time.step or rate.</p>";
}

}  // namespace

std::string html_report(const Plan& p, const std::vector<Ranked>& servers, const PlanRequest& r) {
  const Workload& w = p.compiled ? p.compiled_work : p.eager_work;
  std::string s = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Plan of "
      "{0}</title><style>"
      "body{{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 "
      "1em;color:#222;background:#fff}}"
      "@media(prefers-color-scheme:dark){{body{{color:#ddd;background:#181818}}text{{fill:#ddd}}}}"
      "svg{{width:100%;height:auto;display:block;margin:.5em 0}}text{{font:12px sans-serif}}"
      "table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;padding:.2em "
      ".6em;border-bottom:1px solid #8884}}"
      "details,.leaf{{margin-left:1.2em}}code{{color:#888}}i{{color:#888}}.key "
      "span{{display:inline-block;width:.9em;height:.9em;margin:0 .3em 0 1em}}"
      "</style></head><body><h1>{0}</h1><p>{1} x {2}, batch {3}, {4}, {5}, {6}{7}</p>",
      escape(p.model), p.n, escape(p.gpu.name), p.batch, to_string(w.options.precision),
      p.compiled ? "compiled" : "eager", escape(w.options.optimizer), unusual_of(p));
  for (const std::string& n : p.notes) s += "<p>" + escape(n) + "</p>";
  s += "<h2>Memory over one step</h2>" + timeline(w) + "<p class=\"key\">";
  double held[kMemoryCategories] = {};
  for (const Moment& m : w.memory.timeline)
    for (size_t c = 0; c < std::size(held); ++c) held[c] = std::max(held[c], m.held.bytes[c]);
  for (size_t c = 0; c < kMemoryCategories; ++c)
    if (held[c] > 0)
      s += fmt::format("<span style=\"background:{}\"></span>{}", kColours[c],
                       to_string(static_cast<MemoryCategory>(c)));
  s += "</p>";
  if (const Quantity* m = p.find("memory"))
    s += "<h2>Memory by category: " + show(*m) + "</h2>" + stack(*m);
  if (const Quantity* t = p.find("time.device"))
    s += "<h2>Time of one batch: " + show(*t) + "</h2>" + stack(*t);
  if (!servers.empty()) {
    s += "<h2>Cost against time</h2>" + front(servers);
    s += "<table><tr><th>server</th><th>memory</th><th>time</th><th>cost</th><th>energy</th><th></"
         "th></tr>";
    for (size_t k = 0; k < servers.size() && k < 12; ++k)
      s += fmt::format(
          "<tr><td>{} x {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
          servers[k].n, escape(servers[k].gpu) + (servers[k].assumed ? " ~" : ""),
          show(servers[k].memory, "B"), show(servers[k].seconds, "s"), show(servers[k].usd, "USD"),
          show(servers[k].kwh, "kWh"), servers[k].fits ? "" : "does not fit");
    s += "</table><p>~ its efficiency is assumed, no published runs set it. A row's figures: "
         "<code>--gpu</code>, <code>--n</code> and <code>--why</code> memory, time, cost or "
         "energy.</p>";
  }
  if (!p.server.empty()) {
    s += "<h2>The server</h2><table "
         "id=\"server\"><tr><th></th><th>eager</th><th>compiled</th><th>rule of "
         "thumb</th><th>because</th></tr>";
    for (const ServerLine& l : p.server)
      s += fmt::format(
          "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{} <code>{}</code></td></tr>",
          escape(l.part), escape(l.eager), escape(l.compiled), escape(l.thumb), escape(l.cause),
          escape(l.key));
    s += "</table>";
  }
  s += "<h2>Sensitivity</h2>" + sensitivity(p, r) + "<h2>Every figure and why</h2>";
  for (const Quantity& q : p.figures) s += tree(q, 0);
  for (const ServerLine& l : p.server)
    for (const Quantity& q : l.figures) s += tree(q, 0);
  return s + "</body></html>\n";
}

}  // namespace tandem::plan
