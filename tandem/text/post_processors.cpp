// SPDX-License-Identifier: Apache-2.0
// The post-processors of tokenizer files: templates, BERT's and RoBERTa's, and byte-level trimming
// of offsets.
#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/text/finish_internal.h"

namespace tandem::text {

void append(Encoding& a, const Encoding& b) {
  Budget::take(b.size() * 2 * (4 * sizeof(int64_t) + sizeof(Encoding::Offsets)));
  a.ids.insert(a.ids.end(), b.ids.begin(), b.ids.end());
  a.type_ids.insert(a.type_ids.end(), b.type_ids.begin(), b.type_ids.end());
  a.attention_mask.insert(a.attention_mask.end(), b.attention_mask.begin(), b.attention_mask.end());
  a.special_tokens_mask.insert(a.special_tokens_mask.end(), b.special_tokens_mask.begin(),
                               b.special_tokens_mask.end());
  a.offsets.insert(a.offsets.end(), b.offsets.begin(), b.offsets.end());
}

namespace {

void push_special(Encoding& e, int64_t id, int64_t type_id) {
  Budget::take(2 * (4 * sizeof(int64_t) + sizeof(Encoding::Offsets)));  // lists double as they grow
  e.ids.push_back(id);
  e.type_ids.push_back(type_id);
  e.attention_mask.push_back(1);
  e.special_tokens_mask.push_back(1);
  e.offsets.push_back({0, 0});
}
void set_types(Encoding& e, int64_t type_id) {
  std::fill(e.type_ids.begin(), e.type_ids.end(), type_id);
}

// Spaces at the ends of a token are excluded from its offsets.
class Trimmer {
 public:
  Trimmer(const void* owner, TokenText token, bool prefix)
      : owner_(owner), token_(token), prefix_(prefix) {}
  void run(Draft& e) const {
    auto surface = e.surfaces.begin();
    for (size_t i = 0; i < e.size(); ++i) {
      const std::string* t = token_(owner_, static_cast<uint32_t>(e.ids[i]));
      if (surface != e.surfaces.end() && surface->first == i) t = &(surface++)->second;
      if (!t) continue;
      uint32_t lead = 0, trail = 0;
      bool all = true;
      for (size_t k = 0; k < t->size();) {
        const char32_t c = next_char(*t, k);
        const bool space = c == 0x120 || is_space(c);
        trail = space ? trail + 1 : 0;
        all = all && space;
        if (all) ++lead;
      }
      auto& o = e.offsets[i];
      if (lead == 1 && prefix_ && (i == 0 || o.begin == 0)) lead = 0;
      o.begin = std::min(o.begin + lead, o.end);
      if (trail > 0 && o.end >= trail) o.end = std::max(o.end - trail, o.begin);
    }
  }

 private:
  const void* owner_;
  TokenText token_;
  bool prefix_;
};

class ByteLevelPostProcessor : public PostProcessor {
 public:
  ByteLevelPostProcessor(const Fields& f, const void* owner, TokenText token)
      : trim_(f.flag("trim_offsets", true)),
        trimmer_(owner, token, f.flag("add_prefix_space", true)) {}
  size_t added(bool) const override { return 0; }
  void run(std::vector<Draft>& v, bool) const override {
    if (trim_)
      for (Draft& e : v) trimmer_.run(e);
  }

 private:
  bool trim_;
  Trimmer trimmer_;
};

int64_t id_of_pair(const Fields& f, const char* key) {
  const io::Json::Array& a = f.array(key);
  TD_CHECK(a.size() == 2 && a[0].as_string() && a[1].as_int() && *a[1].as_int() >= 0 &&
               *a[1].as_int() <= kMaxTokenId,
           Format, "{}: '{}' must be a token and its number", f.part(), key);
  return *a[1].as_int();
}

// [cls] a [sep] b [sep], with two [sep] between for RoBERTa, whose types are all 0.
class ClassifierPostProcessor : public PostProcessor {
 public:
  ClassifierPostProcessor(const Fields& f, bool roberta, const void* owner, TokenText token)
      : sep_(id_of_pair(f, "sep")),
        cls_(id_of_pair(f, "cls")),
        roberta_(roberta),
        trim_(roberta && f.flag("trim_offsets", true)),
        trimmer_(owner, token, f.flag("add_prefix_space", true)) {}
  size_t added(bool pair) const override { return pair ? (roberta_ ? 4 : 3) : 2; }
  void run(std::vector<Draft>& v, bool add) const override {
    for (Draft& e : v) {
      if (trim_) trimmer_.run(e);
      if (roberta_) set_types(e, 0);
    }
    if (!add) return;
    for (size_t i = 0; i < v.size(); ++i) {
      Draft e;
      const int64_t type = roberta_ ? 0 : static_cast<int64_t>(i);
      set_types(v[i], type);
      if (i == 0)
        push_special(e, cls_, 0);
      else if (roberta_)
        push_special(e, sep_, 0);
      append(e, v[i]);
      push_special(e, sep_, type);
      v[i] = std::move(e);
    }
  }

 private:
  int64_t sep_, cls_;
  bool roberta_, trim_;
  Trimmer trimmer_;
};

class TemplatePostProcessor : public PostProcessor {
 public:
  explicit TemplatePostProcessor(const Fields& f) {
    if (f.find("special_tokens"))
      for (const auto& [name, value] : f.object("special_tokens")) {
        const Fields s(value, f.part() + ", special token " + name);
        std::vector<int64_t> ids;
        for (const io::Json& id : s.array("ids")) {
          TD_CHECK(id.as_int() && *id.as_int() >= 0 && *id.as_int() <= kMaxTokenId, Format,
                   "{}: its ids must be numbers in [0, {}]", s.part(), kMaxTokenId);
          ids.push_back(*id.as_int());
        }
        specials_.emplace_back(name, std::move(ids));
      }
    single_ = read(f, "single");
    pair_ = read(f, "pair");
    for (const Item& i : single_)
      TD_CHECK(i.sequence != 1, Format, "{}: 'single' names sequence B", f.part());
  }
  size_t added(bool pair) const override {
    size_t n = 0;
    for (const Item& i : pair ? pair_ : single_)
      if (i.sequence < 0) n += i.ids.size();
    return n;
  }
  void run(std::vector<Draft>& v, bool add) const override {
    Draft out;
    for (const Item& item : v.size() == 2 ? pair_ : single_) {
      if (item.sequence >= 0) {
        Encoding& e = v[static_cast<size_t>(item.sequence)];
        set_types(e, item.type_id);
        append(out, e);
      } else if (add) {
        for (const int64_t id : item.ids) push_special(out, id, item.type_id);
      }
    }
    v.clear();
    v.push_back(std::move(out));
  }

 private:
  struct Item {
    int sequence = -1;  // 0 is A, 1 is B
    std::vector<int64_t> ids;
    int64_t type_id = 0;
  };
  std::vector<Item> read(const Fields& f, const char* key) const {
    std::vector<Item> items;
    for (const io::Json& entry : f.array(key)) {
      Item item;
      const Fields e(entry, f.part() + ", " + key);
      const bool sequence = e.find("Sequence");
      const Fields x(e.at(sequence ? "Sequence" : "SpecialToken"), e.part());
      item.type_id = x.integer("type_id", 0, kMaxTokenId, 0);
      const std::string id = x.text("id");
      if (sequence) {
        TD_CHECK(id == "A" || id == "B", Format, "{}: there is no sequence '{}'", e.part(), id);
        item.sequence = id == "B";
      } else {
        Budget::work(static_cast<double>(specials_.size()));
        const auto at = std::find_if(specials_.begin(), specials_.end(),
                                     [&](const auto& s) { return s.first == id; });
        TD_CHECK(at != specials_.end(), Format, "{}: the special token '{}' is not described",
                 e.part(), id);
        Budget::take(at->second.size() * sizeof(int64_t));
        item.ids = at->second;
      }
      items.push_back(std::move(item));
    }
    return items;
  }
  std::vector<std::pair<std::string, std::vector<int64_t>>> specials_;
  std::vector<Item> single_, pair_;
};

class SequencePostProcessor : public PostProcessor {
 public:
  explicit SequencePostProcessor(std::vector<std::unique_ptr<PostProcessor>> parts)
      : parts_(std::move(parts)) {}
  size_t added(bool pair) const override {
    size_t n = 0;
    for (const auto& p : parts_) n += p->added(pair);
    return n;
  }
  void run(std::vector<Draft>& v, bool add) const override {
    for (const auto& p : parts_) p->run(v, add);
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
};

}  // namespace

std::unique_ptr<PostProcessor> make_post_processor(const io::Json& json, const void* owner,
                                                   TokenText token, int depth) {
  TD_CHECK(depth < kMaxPartDepth, Format, "post-processors are nested more than {} deep",
           kMaxPartDepth);
  const std::string type = Fields(json, "post_processor").text("type");
  const Fields f(json, "post_processor " + type);
  if (type == "BertProcessing")
    return std::make_unique<ClassifierPostProcessor>(f, false, owner, token);
  if (type == "RobertaProcessing")
    return std::make_unique<ClassifierPostProcessor>(f, true, owner, token);
  if (type == "ByteLevel") return std::make_unique<ByteLevelPostProcessor>(f, owner, token);
  if (type == "TemplateProcessing") return std::make_unique<TemplatePostProcessor>(f);
  TD_CHECK(type == "Sequence", Format, "there is no post-processor '{}'", type);
  std::vector<std::unique_ptr<PostProcessor>> parts;
  for (const io::Json& part : f.array("processors"))
    parts.push_back(make_post_processor(part, owner, token, depth + 1));
  return std::make_unique<SequencePostProcessor>(std::move(parts));
}

}  // namespace tandem::text
