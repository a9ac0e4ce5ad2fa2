// SPDX-License-Identifier: Apache-2.0
// The page at "/" for people, and the state that it asks for. The page itself tells nothing about
// the server, so it needs no key; its state does.
#include <fmt/format.h>

#include "tandem/base/base64.h"
#include "tandem/base/clock.h"
#include "tandem/base/hash/sha256.h"
#include "tandem/serve/page/page_script_internal.h"
#include "tandem/serve/page/page_text_internal.h"
#include "tandem/serve/server_internal.h"

namespace tandem::serve {
namespace {

// "'sha256-...'": a browser runs this text and no other.
std::string allowed(std::string_view text) {
  const auto hash = sha256(text);
  return "'sha256-" + base64({reinterpret_cast<const char*>(hash.data()), hash.size()}) + "'";
}

struct PageTexts {
  std::string html, policy;
};
const PageTexts& page_texts() {
  static const PageTexts texts = [] {
    const std::string script = fmt::format("{}{}", kPageScript, kTryScript);
    PageTexts t;
    t.html = fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<title>tandem serve</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{}</style>\n{}"
        "<script>{}</script>\n</html>\n",
        kPageStyle, kPageBody, script);
    t.policy = fmt::format(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        allowed(script), allowed(kPageStyle));
    return t;
  }();
  return texts;
}

std::string ports_json(const std::vector<ModelPort>& ports) {
  std::string out;
  for (const ModelPort& p : ports) {
    out += out.empty() ? "{\"name\":" : ",{\"name\":";
    write_text(out, p.name);
    out += fmt::format(",\"datatype\":\"{}\",\"shape\":[{}]}}", v2_name(p.dtype),
                       fmt::join(p.shape, ","));
  }
  return "[" + out + "]";
}

// Counts since the start: what happened in a second is the difference of two states.
std::string model_json(const ModelVersion& v) {
  const JobCounts& c = v.scheduler->counts();
  std::string latency;
  c.total.each([&latency](double seconds, uint64_t n) {
    latency += fmt::format("{}[{:.4g},{}]", latency.empty() ? "" : ",", seconds, n);
  });
  uint64_t ok = c.ok;
  std::string out = "{\"name\":";
  write_text(out, v.name);
  out += fmt::format(",\"version\":{},\"platform\":\"{}\",\"inputs\":{},\"outputs\":{}", v.version,
                     v.model->platform(), ports_json(v.model->inputs()),
                     ports_json(v.model->outputs()));
  const std::string_view files = v.model->file_kind();
  if (!files.empty()) out += fmt::format(",\"files\":\"{}\"", files);
  if (v.text) {
    const TextCounts& t = v.text->engine.counts();
    ok += t.ok;
    out += fmt::format(",\"text\":{{\"chat\":{},\"tokens\":{},\"running\":{}}}",
                       v.text->chat.has_value(), t.new_tokens.load(), t.running.load());
  }
  if (v.embeds()) out += ",\"embedding\":true";
  if (const std::string note = v.model->note(); !note.empty()) {
    out += ",\"note\":";
    write_text(out, note);
  }
  out += fmt::format(",\"ok\":{},\"rows\":{},\"runs\":{},\"waiting\":{},\"latency\":[{}]}}", ok,
                     c.rows.load(), c.runs.load(), v.scheduler->waiting(), latency);
  return out;
}

void page_state(Call& call) {
  const HttpCounts h = call.server.counts();
  std::string models;
  for (const ModelVersionPtr& v : call.server.repository.all())
    models += (models.empty() ? "" : ",") + model_json(*v);
  call.json(fmt::format(
      "{{\"version\":\"{}\",\"time\":{:.6f},\"ready\":{},\"draining\":{},\"requests\":{},"
      "\"connections\":{},\"memory\":{:.0f},\"models\":[{}]}}",
      TANDEM_VERSION, unix_time(), call.server.repository.ready(), call.server.draining(),
      h.requests, h.open, resident_bytes(), models));
}

}  // namespace

bool asks_for_page(const HttpRequest& request) {
  const std::string* accept = request.header("accept");
  return request.path == "/" && accept && list_holds(*accept, "text/html");
}

bool handle_page(Call& call) {
  const bool state = call.path.size() == 2 && call.path[0] == "page" && call.path[1] == "state";
  if (!call.server.options.page || (!state && !asks_for_page(call.request()))) return false;
  call.only("GET");
  if (state) {
    page_state(call);
    return true;
  }
  const PageTexts& texts = page_texts();
  call.answer({.content_type = "text/html; charset=utf-8",
               .headers = {{"Content-Security-Policy", texts.policy},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "no-referrer"},
                           {"Cache-Control", "no-cache"}},
               .body = texts.html});
  return true;
}

}  // namespace tandem::serve
