// SPDX-License-Identifier: Apache-2.0
// utf8proc and Oniguruma behind a few functions. Canonical ordering and composition are written
// here, because offsets require knowing what became of each character; the tables are utf8proc's.
#include <utf8proc.h>

#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/text/onig_internal.h"
#include "tandem/text/unicode_internal.h"

namespace tandem::text {
namespace {

struct Range {
  char32_t first, last;
};
#include "tandem/text/unicode_old.inc"
template <size_t n>
bool in(const Range (&ranges)[n], char32_t c) {
  const Range* r = std::lower_bound(ranges, ranges + n, c,
                                    [](const Range& x, char32_t v) { return x.last < v; });
  return r != ranges + n && r->first <= c;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
int combining_class(char32_t c) {
  if (c < 0x300 || in(kNotMark, c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// The single character that a and b compose to, or 0.
char32_t compose(char32_t a, char32_t b) {
  if (b < 0x300) return 0;
  utf8proc_int32_t pair[3] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b),
                              0};
  const auto n = utf8proc_normalize_utf32(
      pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  return n == 1 ? static_cast<char32_t>(pair[0]) : 0;
}

struct Classed {
  Change change;
  int combining;
};

std::vector<Classed> decompose(std::string_view s, bool compatible) {
  std::vector<Classed> out;
  out.reserve(s.size());
  const auto options = static_cast<utf8proc_option_t>(
      compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE);
  size_t pending = 0;  // from here on not yet in canonical order
  const auto order = [&] {
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(pending), out.end(),
                     [](const Classed& a, const Classed& b) { return a.combining < b.combining; });
    pending = out.size();
  };
  for (size_t i = 0; i < s.size();) {
    const char32_t c = next_char(s, i);
    utf8proc_int32_t parts[32];
    utf8proc_ssize_t n = 1;
    parts[0] = static_cast<utf8proc_int32_t>(c);
    if (c >= 0xA0 && !in(kNotDecomposed, c)) {
      int boundary = 0;
      n = utf8proc_decompose_char(parts[0], parts, 32, options, &boundary);
      TD_ASSERT(n > 0 && n <= 32);
    }
    for (utf8proc_ssize_t k = 0; k < n; ++k) {
      const auto part = static_cast<char32_t>(parts[k]);
      const int combining = combining_class(part);
      if (combining == 0) order();
      out.push_back({{part, k > 0}, combining});
    }
  }
  order();
  return out;
}

std::vector<Change> composed(const std::vector<Classed>& in) {
  std::vector<Change> out, behind;  // behind: marks that follow the starter
  out.reserve(in.size());
  bool has_starter = false;
  Change starter{};
  int last = -1;
  const auto flush = [&] {
    if (has_starter) out.push_back(starter);
    out.insert(out.end(), behind.begin(), behind.end());
    behind.clear();
    last = -1;
  };
  for (const Classed& next : in) {
    if (!has_starter) {
      if (next.combining != 0) {
        out.push_back(next.change);
      } else {
        starter = next.change;
        has_starter = true;
      }
      continue;
    }
    if (last < next.combining) {
      if (const char32_t composed = compose(starter.c, next.change.c)) {
        starter = {composed, starter.change + next.change.change - 1};
        continue;
      }
    }
    if (next.combining == 0) {
      flush();
      starter = next.change;
    } else {
      behind.push_back(next.change);
      last = next.combining;
    }
  }
  flush();
  return out;
}

}  // namespace

void append_char(std::string& s, char32_t c) {
  char b[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c),
                                      reinterpret_cast<utf8proc_uint8_t*>(b));
  s.append(b, static_cast<size_t>(n));
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_letter(char32_t c) {
  if (c < 0x80) return (c | 32U) >= 'a' && (c | 32U) <= 'z';
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
bool is_punctuation(char32_t c) {
  const auto k = category(c);
  if (k < UTF8PROC_CATEGORY_PC || k > UTF8PROC_CATEGORY_PO) return c == 0x166D || c == 0x111C9;
  return !in(kNotPunctuation, c);
}
bool is_mark(char32_t c) {
  const auto k = category(c);
  if (k < UTF8PROC_CATEGORY_MN || k > UTF8PROC_CATEGORY_ME) return c == 0x1CF2 || c == 0x1CF3;
  return !in(kNotMark, c);
}
bool is_nonspacing_mark(char32_t c) {
  if (category(c) != UTF8PROC_CATEGORY_MN) return c == 0x1734;
  return !in(kNotNonspacing, c);
}
bool is_other(char32_t c) {
  const auto k = category(c);
  return (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO) &&
         !in(kNotOther, c);
}
bool is_word(char32_t c) {
  if (c < 0x80) return is_letter(c) || is_number(c) || c == '_';
  const auto k = category(c);
  return ONIGENC_IS_CODE_ALPHA(onig().utf8, c) || k == UTF8PROC_CATEGORY_ND ||
         k == UTF8PROC_CATEGORY_PC || (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME) ||
         c == 0x200C || c == 0x200D;
}
std::u32string_view lower(char32_t c, char32_t (&room)[2]) {
  if (c == 0x130) {
    room[0] = 'i';
    room[1] = 0x307;
    return {room, 2};
  }
  room[0] = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  return {room, 1};
}

std::vector<Change> normal_form(std::string_view s, NormalForm form) {
  const auto parts = decompose(s, form == NormalForm::nfkc || form == NormalForm::nfkd);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) return composed(parts);
  std::vector<Change> out;
  out.reserve(parts.size());
  for (const Classed& p : parts) out.push_back(p.change);
  return out;
}

std::vector<uint32_t> grapheme_ends(std::string_view s) {
  std::vector<uint32_t> ends;
  utf8proc_int32_t state = 0, before = -1;
  for (size_t i = 0; i < s.size();) {
    const size_t begin = i;
    const auto c = static_cast<utf8proc_int32_t>(next_char(s, i));
    if (before >= 0 && utf8proc_grapheme_break_stateful(before, c, &state))
      ends.push_back(static_cast<uint32_t>(begin));
    before = c;
  }
  if (!s.empty()) ends.push_back(static_cast<uint32_t>(s.size()));
  return ends;
}

Regex::Regex(const std::string& pattern) {
  TD_CHECK(pattern.size() < 1U << 16, Format, "a regular expression of {} bytes is too long",
           pattern.size());
  const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
  OnigRegex made = nullptr;
  OnigErrorInfo info;
  const int code = onig().make(&made, begin, begin + pattern.size(), ONIG_OPTION_NONE, onig().utf8,
                               onig().syntax, &info);
  if (code != ONIG_NORMAL) {
    OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN] = "";
    onig().error_text(why, code, &info);
    TD_FAIL(Format, "'{}' is not a regular expression: {}", pattern,
            reinterpret_cast<const char*>(why));
  }
  compiled_ = std::shared_ptr<void>(made, [](void* p) { onig().free(static_cast<OnigRegex>(p)); });
}

void Regex::find_all(std::string_view s, std::vector<std::pair<uint32_t, uint32_t>>& out) const {
  out.clear();
  auto* regex = static_cast<OnigRegex>(compiled_.get());
  const auto* begin = reinterpret_cast<const OnigUChar*>(s.data());
  const auto* end = begin + s.size();
  std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(
      onig().region_new(), [](OnigRegion* r) { onig().region_free(r, 1); });
  size_t from = 0;
  ptrdiff_t last_end = -1;
  while (from <= s.size()) {
    Budget::check_time();
    const int at =
        onig().search(regex, begin, end, begin + from, end, region.get(), ONIG_OPTION_NONE);
    if (at == ONIG_MISMATCH) return;
    TD_CHECK(at >= 0, Value, "a regular expression of the tokenizer takes too long on this text");
    const int b = region->beg[0], e = region->end[0];
    if (b == e && last_end == e) {  // an empty match right after the last one does not count
      from += from < s.size() ? char_bytes(s[from]) : 1;
      continue;
    }
    out.emplace_back(static_cast<uint32_t>(b), static_cast<uint32_t>(e));
    from = static_cast<size_t>(e);
    last_end = e;
  }
}

}  // namespace tandem::text
