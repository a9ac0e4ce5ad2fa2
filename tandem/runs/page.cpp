// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/page.h"

#include <fmt/core.h>

#include <cmath>

#include "tandem/base/base64.h"
#include "tandem/base/error.h"
#include "tandem/runs/page_script_internal.h"

namespace tandem::runs {
namespace {

io::Json::Array numbers(const std::vector<double>& v) {
  io::Json::Array a;
  for (double x : v) a.push_back(x);  // what is not finite becomes null
  return a;
}
io::Json::Array texts(const std::vector<std::string>& v) {
  io::Json::Array a;
  for (const std::string& x : v) a.push_back(x);
  return a;
}
template <class T>
io::Json::Array rows(const std::vector<std::vector<T>>& v) {
  io::Json::Array a;
  for (const auto& r : v) {
    if constexpr (std::is_same_v<T, double>)
      a.push_back(numbers(r));
    else
      a.push_back(texts(r));
  }
  return a;
}

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

}  // namespace

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  io::Json::Array a;
  for (const auto& [label, value] : facts) a.push_back(io::Json::Array{label, value});
  add({{"kind", "facts"}, {"facts", std::move(a)}});
}
void Page::note(const std::string& text) { add({{"kind", "note"}, {"text", text}}); }

void Page::chart(const std::string& title, const std::string& x_name,
                 const std::vector<Series>& series) {
  io::Json::Array a;
  for (const Series& s : series) {
    TD_CHECK(s.x.size() == s.y.size(), Value, "the series '{}' has {} places and {} values", s.name,
             s.x.size(), s.y.size());
    bool any = false;
    for (double v : s.y) any = any || std::isfinite(v);
    if (any)
      a.push_back(io::Json::Object{{"name", s.name}, {"x", numbers(s.x)}, {"y", numbers(s.y)}});
  }
  if (a.empty()) return;
  add({{"kind", "chart"}, {"title", title}, {"x", x_name}, {"series", std::move(a)}});
}

void Page::table(const std::string& title, const std::vector<std::string>& head,
                 const std::vector<std::vector<std::string>>& lines) {
  for (const auto& line : lines)
    TD_CHECK(line.size() == head.size(), Value, "'{}': a row of {} fields under {}", title,
             line.size(), head.size());
  add({{"kind", "table"}, {"title", title}, {"head", texts(head)}, {"rows", rows(lines)}});
}

void Page::matrix(const std::string& title, const std::vector<std::string>& labels,
                  const std::vector<std::vector<double>>& counts) {
  add({{"kind", "matrix"}, {"title", title}, {"labels", texts(labels)}, {"counts", rows(counts)}});
}

void Page::heat(const std::string& title, const std::vector<std::string>& names,
                const std::vector<std::string>& columns,
                const std::vector<std::vector<double>>& values) {
  add({{"kind", "heat"},
       {"title", title},
       {"rows", texts(names)},
       {"columns", texts(columns)},
       {"values", rows(values)}});
}

void Page::images(const std::string& title, const std::vector<Image>& images) {
  io::Json::Array a;
  for (const Image& p : images) {
    io::Json::Object o{{"caption", p.caption}};
    if (p.png.empty())
      o.emplace_back("text", p.text);
    else
      o.emplace_back("src", "data:image/png;base64," + base64(p.png));
    a.push_back(std::move(o));
  }
  add({{"kind", "images"}, {"title", title}, {"images", std::move(a)}});
}

void Page::listing(const std::string& title, const std::string& text) {
  add({{"kind", "listing"}, {"title", title}, {"text", text}});
}

void Page::parallel(const std::string& title, const std::vector<Axis>& axes,
                    const std::vector<std::vector<double>>& lines) {
  io::Json::Array a;
  for (const Axis& x : axes)
    a.push_back(io::Json::Object{{"name", x.name}, {"log", x.log}, {"words", texts(x.words)}});
  add({{"kind", "parallel"}, {"title", title}, {"axes", std::move(a)}, {"lines", rows(lines)}});
}

std::string Page::html() const {
  const std::string json = io::Json(io::Json::Object{{"parts", parts_}}).dump();
  std::string safe;  // no "</script>" and no "<!--" inside
  for (char c : json) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return fmt::format(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>{0}</title>\n<meta "
      "name=viewport content=\"width=device-width,initial-scale=1\"><link rel=icon "
      "href=\"data:,\"><style>{1}</style></head>\n<body><h1>{0}</h1>\n<div "
      "id=page></div>\n<script type=\"application/json\" "
      "id=data>{2}</script>\n<script>{3}</script></body></html>\n",
      escaped(title_), kPageStyle, safe, kPageScript);
}

}  // namespace tandem::runs
