// SPDX-License-Identifier: Apache-2.0
// What ranks agree on before they train: layouts that are compared, values that rank 0 gives.
#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/dist/objects.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {

void broadcast_cells(Engine& engine, const std::vector<Cell*>& cells, const std::string& label,
                     int root) {
  const NoGradGuard no_grad;
  std::map<std::pair<DType, std::string>, std::vector<Cell*>> alike;
  for (Cell* c : cells) {
    const Spec spec = c->spec();
    alike[{spec.dtype, to_string(spec.device)}].push_back(c);
  }
  for (const auto& [kind, group] : alike) {
    const DType dtype = kind.first;
    std::vector<Tensor> parts;
    for (const Cell* c : group) parts.push_back(c->read().detach().reshape({-1}));
    const Tensor own = parts.size() == 1 ? parts[0].clone() : cat(parts, 0);
    Tensor flat = own.cpu();  // engines take memory of the host
    engine.broadcast({flat.impl()->data, flat.numel(), dtype}, root, {label}).wait();
    if (engine.rank() == root) continue;
    int64_t at = 0;
    for (Cell* c : group) {
      const Tensor now = c->read();
      c->assign(narrow(flat, 0, at, now.numel()).reshape(now.shape()).clone().to(now.device()),
                SourceLocation::here());
      at += now.numel();
    }
  }
}

void share_cells(Engine& engine, const std::vector<Cell*>& cells, const std::string& label,
                 const std::function<void(size_t, const Tensor&)>& keep) {
  if (engine.size() == 1) return;
  const NoGradGuard no_grad;
  const DeviceGuard here(cpu);  // engines take memory of the host
  for (size_t i = 0; i < cells.size(); ++i) {
    const Spec spec = cells[i]->spec();
    Tensor whole;
    if (engine.rank() == 0) {
      {
        const DeferredInitGuard as_it_is;
        whole = cells[i]->read();
      }
      whole = tandem::detail::computed(whole).detach().cpu().contiguous();
    } else {
      whole = empty(spec.shape, spec.dtype);
    }
    engine.broadcast({whole.impl()->data, whole.numel(), spec.dtype}, 0, {label}).wait();
    keep(i, whole);
  }
}

void store_shared(Cell& cell, const Tensor& whole) {
  const Device device = cell.spec().device;
  cell.replace(is_host(device) ? whole : whole.to(device));
}

std::vector<std::string> all_gather_text(Engine& engine, std::string_view text,
                                         const std::string& label) {
  const auto ranks = static_cast<size_t>(engine.size());
  const auto own = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(ranks);
  engine.all_gather({&own, 1, DType::i64}, {sizes.data(), engine.size(), DType::i64}, {label})
      .wait();
  // Equal parts: shorter texts are filled up.
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded(text), all(static_cast<size_t>(most) * ranks, '\0');
  padded.resize(static_cast<size_t>(most), '\0');
  engine
      .all_gather({padded.data(), most, DType::u8}, {all.data(), most * engine.size(), DType::u8},
                  {label})
      .wait();
  std::vector<std::string> out;
  for (size_t r = 0; r < ranks; ++r)
    out.push_back(all.substr(r * static_cast<size_t>(most), static_cast<size_t>(sizes[r])));
  return out;
}

std::string broadcast_text(Engine& engine, std::string_view text, const std::string& label) {
  auto size = static_cast<int64_t>(text.size());
  engine.broadcast({&size, 1, DType::i64}, 0, {label}).wait();
  std::string out(text);
  out.resize(static_cast<size_t>(size));
  engine.broadcast({out.data(), size, DType::u8}, 0, {label}).wait();
  return out;
}

namespace {

// All ranks' lines, by rank.
std::vector<std::vector<std::string>> gather_lines(Engine& engine,
                                                   const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& l : lines) text += l + "\n";
  std::vector<std::vector<std::string>> out;
  for (const std::string& t : all_gather_text(engine, text, "layout")) {
    out.emplace_back();
    for (std::string_view left = t; !left.empty();) {
      const size_t end = left.find('\n');
      out.back().emplace_back(left.substr(0, end));
      left.remove_prefix(end + 1);
    }
  }
  return out;
}

}  // namespace

void compare_lines(Engine& engine, const std::vector<std::string>& lines, const char* what,
                   const char* advice) {
  uint64_t hash = hash_mix(lines.size());
  for (const std::string& l : lines) hash = hash_string(l, hash);
  std::vector<uint64_t> all(static_cast<size_t>(engine.size()));
  engine.all_gather({&hash, 1, DType::i64}, {all.data(), engine.size(), DType::i64}, {"layout"})
      .wait();
  if (std::all_of(all.begin(), all.end(), [&](uint64_t h) { return h == all[0]; })) return;
  const auto of = gather_lines(engine, lines);
  // Ranks may end by what is thrown below: none does before all have read the lines.
  try {
    engine.barrier({what}).wait();
  } catch (const Error&) {  // a rank is gone; the difference says more than that
  }
  for (size_t r = 1; r < of.size(); ++r)
    for (size_t k = 0; k < std::max(of[0].size(), of[r].size()); ++k) {
      const std::string a = k < of[0].size() ? of[0][k] : "nothing";
      const std::string b = k < of[r].size() ? of[r][k] : "nothing";
      TD_CHECK(
          a == b, Value,
          "the {} of the ranks differ: rank 0 has {}, rank {} (host {}, process {}) has {}\n{}",
          what, a, r, engine.member(static_cast<int>(r)).host,
          engine.member(static_cast<int>(r)).pid, b, advice);
    }
  TD_FAIL(Internal, "the {} of the ranks have other hashes and equal lines", what);
}

}  // namespace tandem::distributed
