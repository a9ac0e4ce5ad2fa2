// SPDX-License-Identifier: Apache-2.0
// The elements of all updates are concatenated and split evenly among the threads. Rows are
// pointwise, so the split does not affect the bits.
#include "tandem/graph/cells/update.h"

#include <algorithm>

#include "tandem/base/parallel.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/graph/cells/waiting_updates.h"

namespace tandem {
namespace detail {
namespace {

/// Fewer elements than this are not worth a second thread.
constexpr int64_t kGrain = 8192;

bool matches(const Tensor& t, const TensorImpl& like) {
  const TensorImpl& i = *t.impl();
  return i.shape == like.shape && i.dtype == like.dtype && i.device == like.device &&
         i.has(kContiguous) && !i.has(kSymbolic);
}

}  // namespace

/// The locked cells of updates that run together.
struct ManyUpdates {
  struct Item {
    const CellUpdate* update;
    SmallVec<Tensor, 5> fresh;  ///< defined if somebody holds the old value
    SmallVec<Array, 16> in;
    SmallVec<Array, 4> out;
    KernelChoice choice;
    int64_t begin = 0;  ///< of its elements among all
  };
  std::vector<Item> items;
  int64_t total = 0;

  ~ManyUpdates() {
    for (Item& item : items)
      for (Cell* c : item.update->cells) c->lock_.unlock();
  }

  /// Lock the cells and add the update, or leave everything unchanged.
  bool add(const CellUpdate& u);
  void run();
  void run_part(const Item& item, int64_t begin, int64_t end);
  void store();
};

bool ManyUpdates::add(const CellUpdate& u) {
  const OpDef& row = *u.row;
  size_t n_in = u.cells.size() + 1 + u.numbers.size();
  if (row.family != Family::pointwise || !row.runtime || row.attrs || u.cells.size() != row.n_out ||
      n_in != row.n_in || !u.other.defined())
    return false;
  if (TD_UNLIKELY(any_absent()))
    for (Cell* c : u.cells) (void)c->present();
  for (Cell* c : u.cells) c->lock_.lock();
  const TensorImpl& first = *u.cells[0]->value_.impl();
  bool fits = is_host(first.device) && is_floating(first.dtype) && matches(u.other, first) &&
              row.types != Types::compare;
  for (Cell* c : u.cells) fits = fits && matches(c->value_, first);
  if (!fits) {
    for (Cell* c : u.cells) c->lock_.unlock();
    return false;
  }
  Item& item = items.emplace_back();
  item.update = &u;
  item.begin = total;
  total += first.numel;
  for (size_t i = 0; i < u.cells.size(); ++i) {
    const Tensor& old = u.cells[i]->value_;
    item.in.push_back(array_of(old));
    if (i == 0) item.in.push_back(array_of(u.other));
    Tensor to;
    if (!old.impl()->donatable())
      to = Tensor(Ref<TensorImpl>::adopt(new_tensor(old.shape(), old.dtype(), old.impl()->device)));
    item.out.push_back(array_of(to.defined() ? to : old));
    item.fresh.push_back(std::move(to));
  }
  for (const Scalar& s : u.numbers) {
    Array a;
    a.is_scalar = true;
    a.scalar = s;
    a.dtype = s.dtype();
    item.in.push_back(a);
  }
  KernelCall call{
      row, nullptr, item.in.data(), static_cast<int>(item.in.size()), item.out.data(), row.n_out};
  item.choice = choose_kernel(call);
  return true;
}

void ManyUpdates::run_part(const Item& item, int64_t begin, int64_t end) {
  static constexpr int64_t kOne[] = {1};
  const int64_t n = end - begin;
  const auto cut = [&](Array a) {
    if (a.is_scalar) return a;
    a.data = static_cast<char*>(a.data) + begin * static_cast<int64_t>(size_of(a.dtype));
    a.shape = &n;
    a.strides = kOne;
    a.rank = 1;
    a.numel = n;
    return a;
  };
  Array in[kMaxOpIns], out[kMaxOpOuts];
  for (size_t i = 0; i < item.in.size(); ++i) in[i] = cut(item.in[i]);
  for (size_t i = 0; i < item.out.size(); ++i) out[i] = cut(item.out[i]);
  ErrorWord error;
  KernelCall call{*item.update->row,
                  nullptr,
                  in,
                  static_cast<int>(item.in.size()),
                  out,
                  static_cast<int>(item.out.size()),
                  &error};
  run_with(item.choice, call);
}

void ManyUpdates::run() {
  parallel_for(0, total, kGrain, [this](int64_t begin, int64_t end) {
    auto at = std::upper_bound(items.begin(), items.end(), begin,
                               [](int64_t b, const Item& i) { return b < i.begin; }) -
              1;
    for (; at != items.end() && at->begin < end; ++at) {
      int64_t n = at->in[0].numel;
      int64_t from = std::max<int64_t>(begin - at->begin, 0), to = std::min(end - at->begin, n);
      if (from < to) run_part(*at, from, to);
    }
  });
}

void ManyUpdates::store() {
  for (Item& item : items)
    for (size_t i = 0; i < item.update->cells.size(); ++i) {
      Cell& c = *item.update->cells[i];
      if (item.fresh[i].defined())
        c.adopt(std::move(item.fresh[i]));
      else
        ++c.generation_;
    }
}

}  // namespace detail

WaitingUpdates*& waiting_updates() {
  thread_local WaitingUpdates* t_waiting = nullptr;
  return t_waiting;
}

void update_one(CellUpdate& u, SourceLocation loc) {
  std::vector<Operand> others;
  others.reserve(u.numbers.size() + 1);
  others.emplace_back(u.other, loc);
  for (const Scalar& s : u.numbers) others.emplace_back(s, loc);
  update_(*u.row, nullptr, {u.cells.data(), u.cells.size()}, others, loc);
}

void update_many_(std::span<CellUpdate> list, SourceLocation loc) {
  const Context& c = context();
  if (WaitingUpdates* w = waiting_updates();
      w && c.slow == kShadowed && c.assign_if.empty() && !c.redirect && !c.cell_log) {
    for (CellUpdate& u : list) w->add(std::move(u), loc);
    return;
  }
  bool plain = !(c.slow & ~uint32_t{kAutocast | kProfile}) && !c.trace && c.assign_if.empty() &&
               !c.redirect && !c.cell_log;
  detail::ManyUpdates together;
  together.items.reserve(list.size());
  for (CellUpdate& u : list)
    if (!plain || !together.add(u)) update_one(u, loc);
  together.run();
  together.store();
}

}  // namespace tandem
