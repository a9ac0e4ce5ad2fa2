// SPDX-License-Identifier: Apache-2.0
#include "tandem/text/constraint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tandem/base/error.h"
#include "tandem/text/grammar_internal.h"

namespace tandem::text {
namespace {

constexpr int32_t kUnknown = -2, kNowhere = -1;
constexpr size_t kMostReadings = 4096;      ///< places in a network at the same time
constexpr size_t kMostEffort = 10'000'000;  ///< places visited for one mask
constexpr size_t kHardLimit = 4;            ///< times the usual memory, within one mask

uint64_t key_of(int32_t node, int32_t call) {
  return static_cast<uint64_t>(static_cast<uint32_t>(node)) << 32 | static_cast<uint32_t>(call);
}

}  // namespace

TokenBytes::TokenBytes(const Tokenizer& tokenizer, int64_t size, std::span<const int64_t> left_out)
    : size_(size), places_(static_cast<size_t>(size), -1) {
  for (int64_t id = 0; id < size; ++id) {
    if (std::find(left_out.begin(), left_out.end(), id) != left_out.end()) continue;
    std::string bytes = tokenizer.token_bytes(id);
    if (!bytes.empty()) entries_.push_back({std::move(bytes), id, 0});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (size_t i = 0; i < entries_.size(); ++i) {
    places_[static_cast<size_t>(entries_[i].id)] = static_cast<int32_t>(i);
    if (i == 0) continue;
    const std::string &a = entries_[i - 1].bytes, &b = entries_[i].bytes;
    entries_[i].common = static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())),
                      b.begin())
            .first -
        a.begin());
  }
}

std::string_view TokenBytes::of(int64_t id) const {
  if (id < 0 || id >= size_ || places_[static_cast<size_t>(id)] < 0) return "";
  return entries_[static_cast<size_t>(places_[static_cast<size_t>(id)])].bytes;
}

struct Constraint::Automaton {
  /// A return that is open: the node to continue at, and what is open around it.
  struct OpenCall {
    int32_t node = 0, around = -1, depth = 1;
  };
  /// A place in the network.
  struct Reading {
    int32_t node = 0, call = -1;
    friend bool operator==(const Reading&, const Reading&) = default;
  };
  /// All places where the text so far may be, those with bytes to come; sorted.
  struct ReadState {
    std::vector<Reading> readings = {};
    bool may_end = false;
    std::vector<int32_t> next = {};  ///< by byte; empty: none is known
    std::vector<uint64_t> mask = {};
    bool masked = false, any = false;
  };
  struct ReadingsHash {
    size_t operator()(const std::vector<Reading>& all) const {
      uint64_t h = 0x9E3779B97F4A7C15U;
      for (const Reading& r : all)
        h = (h ^ key_of(r.node, r.call)) * 0xD6E8FEB86659FD93U, h ^= h >> 31;
      return static_cast<size_t>(h);
    }
  };

  Automaton(const Grammar& grammar, std::shared_ptr<const TokenBytes> t, size_t bytes)
      : network(grammar.network()), tokens(std::move(t)), most_bytes(bytes) {
    clear();
  }

  // Forgets all states but those of the texts under way.
  void clear() {
    std::vector<std::pair<ConstrainedText*, std::vector<std::vector<int32_t>>>> kept;
    for (ConstrainedText* text : texts) {
      std::vector<std::vector<int32_t>> chains;
      const ReadState& s = states[static_cast<size_t>(text->state_)];
      for (const Reading& r : s.readings) {
        std::vector<int32_t> chain;
        for (int32_t c = r.call; c >= 0; c = calls[static_cast<size_t>(c)].around)
          chain.push_back(calls[static_cast<size_t>(c)].node);
        chain.push_back(r.node);
        chains.push_back(std::move(chain));
      }
      // Its ends are found again through the accepting flag.
      chains.push_back({s.may_end ? 1 : 0});
      kept.emplace_back(text, std::move(chains));
    }
    states.clear();
    calls.clear();
    call_ids.clear();
    state_ids.clear();
    used = 0;
    start = close({{network->rules[0].begin, -1}});
    for (auto& [text, chains] : kept) {
      const bool may_end = chains.back()[0] != 0;
      chains.pop_back();
      std::vector<Reading> readings;
      for (const std::vector<int32_t>& chain : chains) {
        int32_t call = -1;
        for (size_t i = chain.size() - 1; i-- > 0;) call = open(chain[i], call);
        readings.push_back({chain.back(), call});
      }
      text->state_ = intern(std::move(readings), may_end);
    }
  }
  void keep_within() {
    if (used > most_bytes) clear();
  }

  int32_t open(int32_t node, int32_t around) {
    const auto [at, fresh] = call_ids.try_emplace(key_of(node, around), 0);
    if (!fresh) return at->second;
    const int32_t depth = around < 0 ? 1 : calls[static_cast<size_t>(around)].depth + 1;
    at->second = static_cast<int32_t>(calls.size());
    calls.push_back({node, around, depth});
    used += 64;
    return at->second;
  }
  int32_t depth_of(int32_t call) const {
    return call < 0 ? 0 : calls[static_cast<size_t>(call)].depth;
  }

  int32_t intern(std::vector<Reading> readings, bool may_end) {
    if (readings.empty() && !may_end) return kNowhere;
    std::sort(readings.begin(), readings.end(), [](const Reading& a, const Reading& b) {
      return a.node != b.node ? a.node < b.node : a.call < b.call;
    });
    readings.push_back({may_end ? 1 : 0, -2});
    const auto [at, fresh] = state_ids.try_emplace(readings, static_cast<int32_t>(states.size()));
    if (!fresh) return at->second;
    readings.pop_back();
    used += 256 + 2 * readings.size() * sizeof(Reading);
    TD_CHECK(used < kHardLimit * most_bytes, Value, "the constraint takes too many states");
    states.push_back({.readings = std::move(readings), .may_end = may_end});
    return at->second;
  }

  // The state of these places and of all that they lead to without a byte.
  int32_t close(std::vector<Reading> open_places) {
    std::unordered_set<uint64_t> seen;
    std::vector<Reading> out;
    bool may_end = false;
    const auto visit = [&](int32_t node, int32_t call) {
      if (depth_of(call) + network->nodes[static_cast<size_t>(node)].height > Network::kDepth)
        return;
      if (seen.insert(key_of(node, call)).second) open_places.push_back({node, call});
    };
    std::vector<Reading> first = std::move(open_places);
    open_places.clear();
    for (const Reading& r : first) visit(r.node, r.call);
    while (!open_places.empty()) {
      TD_CHECK(seen.size() <= kMostReadings, Value,
               "the constraint is too ambiguous: a text can be read in more than {} ways",
               kMostReadings);
      ++effort;
      const Reading r = open_places.back();
      open_places.pop_back();
      const NetworkNode& node = network->nodes[static_cast<size_t>(r.node)];
      if (node.ends) {
        if (r.call < 0) {
          may_end = true;
        } else {
          const OpenCall& c = calls[static_cast<size_t>(r.call)];
          visit(c.node, c.around);
        }
        continue;
      }
      bool bytes = false;
      for (const NetworkEdge& e : node.edges) {
        if (e.rule == NetworkEdge::kByte) {
          bytes = true;
        } else if (e.rule == NetworkEdge::kNothing) {
          visit(e.to, r.call);
        } else {
          const int32_t begin = network->rules[static_cast<size_t>(e.rule)].begin;
          const bool last = network->nodes[static_cast<size_t>(e.to)].ends;
          const int32_t height =
              std::max(network->nodes[static_cast<size_t>(begin)].height + (last ? 0 : 1),
                       network->nodes[static_cast<size_t>(e.to)].height);
          if (depth_of(r.call) + height <= Network::kDepth)
            visit(begin, last ? r.call : open(e.to, r.call));
        }
      }
      if (bytes) out.push_back(r);
    }
    return intern(std::move(out), may_end);
  }

  int32_t step(int32_t from, uint8_t byte) {
    {
      ReadState& s = states[static_cast<size_t>(from)];
      if (s.next.empty()) {
        s.next.assign(256, kUnknown);
        used += 1024;
      }
      if (const int32_t known = s.next[byte]; known != kUnknown) return known;
    }
    std::vector<Reading> places;
    for (const Reading& r : states[static_cast<size_t>(from)].readings) {
      ++effort;
      for (const NetworkEdge& e : network->nodes[static_cast<size_t>(r.node)].edges)
        if (e.rule == NetworkEdge::kByte && byte >= e.low && byte <= e.high)
          places.push_back({e.to, r.call});
    }
    const int32_t to = places.empty() ? kNowhere : close(std::move(places));
    states[static_cast<size_t>(from)].next[byte] = to;
    return to;
  }

  int32_t run(int32_t from, std::string_view bytes) {
    for (size_t i = 0; i < bytes.size() && from >= 0; ++i)
      from = step(from, static_cast<uint8_t>(bytes[i]));
    return from;
  }

  // The entries are sorted: each is read from where it leaves the one before it, and what begins
  // with bytes that lead nowhere is passed over.
  void make_mask(int32_t state) {
    effort = 0;
    std::vector<uint64_t> mask((static_cast<size_t>(tokens->size()) + 63) / 64, 0);
    bool any = false;
    std::vector<int32_t> path = {state};
    size_t dead = std::string::npos;  // bytes that lead nowhere; none
    for (const TokenBytes::Entry& e : tokens->entries()) {
      if (e.common >= dead) continue;
      dead = std::string::npos;
      path.resize(std::min(path.size(), e.common + 1));
      while (path.size() <= e.bytes.size()) {
        const int32_t to = step(path.back(), static_cast<uint8_t>(e.bytes[path.size() - 1]));
        if (to < 0) {
          dead = path.size();
          break;
        }
        path.push_back(to);
      }
      TD_CHECK(effort < kMostEffort, Value, "the constraint takes too long");
      if (dead != std::string::npos) continue;
      mask[static_cast<size_t>(e.id) / 64] |= uint64_t{1} << (e.id % 64);
      any = true;
    }
    ReadState& s = states[static_cast<size_t>(state)];
    s.mask = std::move(mask);
    s.masked = true;
    s.any = any;
    used += s.mask.size() * sizeof(uint64_t);
    ++masks;
  }

  std::shared_ptr<const Network> network;
  std::shared_ptr<const TokenBytes> tokens;
  size_t most_bytes = 0, used = 0, effort = 0;
  std::vector<ReadState> states;
  std::unordered_map<std::vector<Reading>, int32_t, ReadingsHash> state_ids;
  std::vector<OpenCall> calls;
  std::unordered_map<uint64_t, int32_t> call_ids;
  std::set<ConstrainedText*> texts;
  int32_t start = 0;
  int64_t masks = 0;
  mutable std::mutex lock;
};

Constraint::Constraint(const Grammar& grammar, std::shared_ptr<const TokenBytes> tokens,
                       size_t bytes)
    : automaton_(std::make_unique<Automaton>(grammar, std::move(tokens), bytes)) {}
Constraint::~Constraint() = default;

int64_t Constraint::states() const {
  const std::lock_guard hold(automaton_->lock);
  return static_cast<int64_t>(automaton_->states.size());
}
int64_t Constraint::masks() const {
  const std::lock_guard hold(automaton_->lock);
  return automaton_->masks;
}

ConstrainedText::ConstrainedText(std::shared_ptr<Constraint> constraint)
    : constraint_(std::move(constraint)) {
  Constraint::Automaton& a = *constraint_->automaton_;
  const std::lock_guard hold(a.lock);
  state_ = a.start;
  a.texts.insert(this);
}
ConstrainedText::~ConstrainedText() {
  Constraint::Automaton& a = *constraint_->automaton_;
  const std::lock_guard hold(a.lock);
  a.texts.erase(this);
}

bool ConstrainedText::may_end() const {
  const Constraint::Automaton& a = *constraint_->automaton_;
  const std::lock_guard hold(a.lock);
  return a.states[static_cast<size_t>(state_)].may_end;
}
bool ConstrainedText::must_end() const {
  const Constraint::Automaton& a = *constraint_->automaton_;
  const std::lock_guard hold(a.lock);
  return a.states[static_cast<size_t>(state_)].readings.empty();
}

bool ConstrainedText::mask(std::span<float> logits) {
  Constraint::Automaton& a = *constraint_->automaton_;
  const std::lock_guard hold(a.lock);
  a.keep_within();
  if (!a.states[static_cast<size_t>(state_)].masked) a.make_mask(state_);
  const auto& s = a.states[static_cast<size_t>(state_)];
  constexpr float kNever = -INFINITY;
  for (size_t word = 0; word * 64 < logits.size(); ++word) {
    const uint64_t bits = word < s.mask.size() ? s.mask[word] : 0;
    const auto part = logits.subspan(word * 64, std::min<size_t>(64, logits.size() - word * 64));
    if (bits == ~uint64_t{0}) continue;
    if (bits == 0) {
      std::fill(part.begin(), part.end(), kNever);
      continue;
    }
    for (size_t i = 0; i < part.size(); ++i) part[i] = (bits >> i & 1U) != 0 ? part[i] : kNever;
  }
  return s.any;
}

bool ConstrainedText::push(int64_t token) {
  const std::string_view bytes = constraint_->automaton_->tokens->of(token);
  return !bytes.empty() && push(bytes);
}
bool ConstrainedText::push(std::string_view bytes) {
  Constraint::Automaton& a = *constraint_->automaton_;
  const std::lock_guard hold(a.lock);
  a.keep_within();
  a.effort = 0;
  const int32_t to = a.run(state_, bytes);
  if (to < 0) return false;
  state_ = to;
  return true;
}

}  // namespace tandem::text
