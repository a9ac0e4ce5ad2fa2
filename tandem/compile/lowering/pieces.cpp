// SPDX-License-Identifier: Apache-2.0
// Concatenations without copies: the step that makes a piece writes it to its place in the whole.
// What cannot be written there is copied, piece by piece.
#include <algorithm>

#include "tandem/compile/lowering/stages.h"
#include "tandem/graph/apply_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem::compiler {
namespace {

struct Piece {
  int place = kNone;
  int64_t at = 0;      ///< bytes from the beginning of the whole
  bool moves = false;  ///< its maker writes it there
};

size_t bytes_of_place(const Place& q) {
  return static_cast<size_t>(q.shape.numel().value()) * size_of(q.dtype);
}

// The pieces of concatenation `i`, where each is a range of the whole's memory.
std::vector<Piece> ranges_of(const Lowering& at, const Instr& i) {
  const Shape& whole = at.spec(i.out[0]).shape;
  const int d = normalize_dim(static_cast<const DimAttrs*>(i.attrs.get())->dim, whole.rank());
  for (int k = 0; k < d; ++k)
    if (whole[k].value() != 1) return {};
  std::vector<Piece> pieces;
  int64_t bytes = 0;
  for (const Arg& a : i.in) {
    pieces.push_back({at.place_of[a.value], bytes});
    bytes += static_cast<int64_t>(bytes_of(at.spec(a.value)));
  }
  return pieces;
}

// Buffers that steps read or that leave the program: not only the whole needs them.
std::vector<char> needed_elsewhere(const Lowering& at) {
  std::vector<char> needed(at.l.buffers.size());
  const auto mark = [&](int place) {
    if (place != kNone) needed[static_cast<size_t>(at.place(place).buffer)] = 1;
  };
  for (const Step& s : at.l.steps)
    for (const StepInput& x : s.in) mark(x.place);
  for (const ValueId v : at.program.results()) mark(at.place_of[v]);
  return needed;
}

// Decide which pieces move: all of a buffer in the arena that nobody has read yet, so that the
// whole need not live longer than for its pieces. Gives their bytes.
size_t choose(const Lowering& at, std::vector<Piece>& pieces) {
  std::vector<char> needed = needed_elsewhere(at);
  const auto align = static_cast<int64_t>(alignment(at.program, at.text));
  size_t moved = 0;
  for (Piece& piece : pieces) {
    const Place& q = at.place(piece.place);
    const Block& b = at.l.buffers[static_cast<size_t>(q.buffer)];
    piece.moves = b.base == Base::arena && !needed[static_cast<size_t>(q.buffer)] && q.contiguous &&
                  q.offset == 0 && b.bytes == bytes_of_place(q) && piece.at % align == 0;
    if (!piece.moves) continue;
    needed[static_cast<size_t>(q.buffer)] = 1;  // a value that stands twice moves once
    moved += b.bytes;
  }
  return moved;
}

}  // namespace

bool lower_concatenation(Lowering& at, const Instr& i) {
  if (at.text || i.op != &op::cat) return false;
  std::vector<Piece> pieces = ranges_of(at, i);
  const Spec& spec = at.spec(i.out[0]);
  if (pieces.empty() || 2 * choose(at, pieces) < bytes_of(spec)) return false;
  const int whole = at.fresh(spec);
  const int buffer = at.place(whole).buffer;
  std::vector<int64_t> moved_to(at.l.buffers.size(), kNone);
  for (const Piece& piece : pieces)
    if (piece.moves) moved_to[static_cast<size_t>(at.place(piece.place).buffer)] = piece.at;
  for (Place& q : at.l.places) {
    const int64_t to = moved_to[static_cast<size_t>(q.buffer)];
    if (to == kNone) continue;
    q.buffer = buffer;
    q.offset += to;
  }
  for (const Piece& piece : pieces) {
    if (piece.moves || at.place(piece.place).shape.numel().value() == 0) continue;
    const Place& q = at.place(piece.place);
    const int to = at.add_place(buffer, Spec(q.dtype, q.shape));
    at.place(to).offset = piece.at;
    copy_to(at, piece.place, to, &i);
  }
  at.place_of[i.out[0]] = whole;
  return true;
}

}  // namespace tandem::compiler
