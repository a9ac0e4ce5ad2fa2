// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/web/pages_internal.h"

#include <cmath>

#include "tandem/base/base64.h"
#include "tandem/edge/text_internal.h"
#include "tandem/edge/web/camera_page_internal.h"
#include "tandem/edge/web/draw_page_internal.h"
#include "tandem/edge/web/listen_page_internal.h"
#include "tandem/edge/web/page_internal.h"

namespace tandem::edge {
namespace {

int64_t elements(const EdgePort& p) { return p.spec.shape.numel().value(); }
bool is_of(const EdgePort& p, DType t, int rank) {
  return p.spec.dtype == t && p.spec.shape.rank() == rank;
}

// One row of them, of as many classes as have labels.
bool gives_scores(const EdgeSource& net, const WebFacts& facts) {
  constexpr int64_t kMostClasses = 100000;
  if (net.outputs.size() != 1 || net.outputs[0].spec.dtype != DType::f32) return false;
  const Shape& s = net.outputs[0].spec.shape;
  const int64_t n = elements(net.outputs[0]);
  const auto labels = static_cast<int64_t>(facts.labels.size());
  return s.rank() > 0 && s[s.rank() - 1] == n && n > 1 && n <= kMostClasses &&
         (labels == 0 || labels == n);
}
// One image of n x n, f32 0..1 or u8, to scores.
bool takes_drawings(const EdgeSource& net, const WebFacts& facts) {
  if (net.inputs.size() != 1 || facts.sample_rate > 0 || !gives_scores(net, facts)) return false;
  const Spec& in = net.inputs[0].spec;
  const int64_t n = elements(net.inputs[0]), rank = in.shape.rank(),
                last = rank > 0 ? in.shape[static_cast<int>(rank) - 1].value() : 0;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(n))));
  return (in.dtype == DType::f32 || in.dtype == DType::u8) && side * side == n && side >= 8 &&
         side <= 64 &&
         (last == n || (last == side && in.shape[static_cast<int>(rank) - 2] == side));
}
// To scores, or to boxes [k, 4] and their scores [k, classes].
bool gives_answers(const EdgeSource& net, const WebFacts& facts) {
  if (gives_scores(net, facts)) return true;
  return net.outputs.size() == 2 && is_of(net.outputs[0], DType::f32, 2) &&
         is_of(net.outputs[1], DType::f32, 2) && net.outputs[0].spec.shape[1] == 4 &&
         net.outputs[0].spec.shape[0] == net.outputs[1].spec.shape[0];
}
bool takes_colours(const EdgeSource& net, const WebFacts& facts) {
  return net.inputs.size() == 1 && is_of(net.inputs[0], DType::u8, 3) &&
         net.inputs[0].spec.shape[0] == 3 && gives_answers(net, facts);
}
bool takes_sound(const EdgeSource& net, const WebFacts& facts) {
  return facts.sample_rate > 0 && net.inputs.size() == 1 && is_of(net.inputs[0], DType::f32, 2) &&
         net.inputs[0].spec.shape[0] == 1 && gives_scores(net, facts);
}

// The loader is a module of its own, so that its worker can be started from it.
std::string page(const char* title, const char* heading, const char* body, const char* script,
                 const WebNet& web, const WebFacts& facts) {
  std::string head = kPageHead, names;
  replace_all(head, "{title}", title);
  replace_all(head, "{heading}", heading);
  for (const std::string& l : facts.labels) names += (names.empty() ? "" : ", ") + js_text(l);
  return head + body + "<script type=\"text/plain\" id=\"loader\">\n" + web.script +
         "</script>\n<script type=\"module\">\nconst loader = new "
         "Blob([document.getElementById('loader').textContent], { type: 'text/javascript' });\n"
         "const { Net, NetWorker, inputs, outputs } = await import(URL.createObjectURL(loader));\n"
         "const labels = [" +
         names + fmt::format("], rate = {};\n", facts.sample_rate) +
         "const moduleBytes = Uint8Array.from(atob('" + base64(web.module) +
         "'), (c) => c.charCodeAt(0));\n" + kPageScores + script + "</script>\n</html>\n";
}

}  // namespace

std::string js_text(const std::string& s) {
  std::string text = "\"";
  for (const char c : s) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
    text += plain ? std::string(1, c) : fmt::format("\\u{:04x}", byte);
  }
  return text + "\"";
}

std::vector<std::pair<std::string, std::string>> web_pages(const EdgeSource& net, const WebNet& web,
                                                           const WebFacts& facts) {
  std::vector<std::pair<std::string, std::string>> out;
  if (takes_drawings(net, facts))
    out.emplace_back("draw.html", page("Draw", "Draw with the mouse or a finger", kDrawPageBody,
                                       kDrawPageScript, web, facts));
  if (takes_colours(net, facts))
    out.emplace_back("camera.html", page("Camera", "What the camera sees", kCameraPageBody,
                                         kCameraPageScript, web, facts));
  if (takes_sound(net, facts))
    out.emplace_back("listen.html", page("Listen", "What the microphone hears", kListenPageBody,
                                         kListenPageScript, web, facts));
  return out;
}

}  // namespace tandem::edge
