// SPDX-License-Identifier: Apache-2.0
// Links of HDF5 groups: the old style (a B-tree of version 1 over symbol table nodes and a local
// heap), links as messages, and the new style for many of them (a B-tree of version 2 over a
// fractal heap), which holds attributes, too.
#include <algorithm>
#include <set>

#include "tandem/io/hdf5/hdf5_internal.h"

namespace tandem::io {
namespace {

constexpr int kLinkInfo = 0x2, kLink = 0x6, kSymbolTable = 0x11;

uint64_t log2_of(uint64_t v) {
  uint64_t n = 0;
  while (v >>= 1) ++n;
  return n;
}
/// Bytes that numbers up to `limit` take.
int width_of(uint64_t limit) {
  return static_cast<int>(log2_of(std::max<uint64_t>(limit, 1)) / 8 + 1);
}

// ---- groups of the old style

class OldGroup {
 public:
  OldGroup(const Hdf5Bytes& f, FunctionRef<void(std::string, uint64_t)> found)
      : f_(f), found_(found) {}

  void run(std::string_view table) {
    Hdf5Cursor in(f_, table, "a symbol table");
    const uint64_t tree = in.address(), heap = in.address();
    Hdf5Cursor h(
        f_,
        f_.at(heap,
              8 + 2 * static_cast<uint64_t>(f_.length_size) + static_cast<uint64_t>(f_.offset_size),
              "a local heap"),
        "a local heap");
    h.signature("HEAP");
    h.skip(4);
    const uint64_t size = h.length();
    h.length();
    names_ = f_.at(h.address(), size, "the names of a group");
    node(tree, 0);
  }

 private:
  void node(uint64_t address, int depth) {
    if (depth > kMostHdf5Depth || !seen_.insert(address).second)
      f_.fail("a group's tree leads back into itself");
    Budget::count();
    Budget::check_time();
    if (f_.at(address, 4, "a node of a group") == "SNOD") return leaf(address);
    Hdf5Cursor in(f_, f_.all.substr(address), "a node of a group");
    in.signature("TREE");
    if (in.byte() != 0) f_.fail("a group's tree has nodes of another kind");
    in.byte();
    const uint64_t n = in.number(2);
    in.address();
    in.address();
    for (uint64_t i = 0; i < n; ++i) {
      in.length();
      node(in.address(), depth + 1);
    }
  }
  void leaf(uint64_t address) {
    Hdf5Cursor in(f_, f_.all.substr(address), "a symbol table node");
    in.signature("SNOD");
    in.skip(2);
    const uint64_t n = in.number(2);
    for (uint64_t i = 0; i < n; ++i) {
      Budget::count();
      const uint64_t name = in.address(), header = in.address(), cached = in.number(4);
      in.skip(4 + 16);
      if (cached == 2) continue;  // a soft link
      if (name >= names_.size()) f_.fail("a link's name lies outside of its heap");
      const std::string_view from = names_.substr(name);
      found_(std::string(from.substr(0, from.find('\0'))), header);
    }
  }

  const Hdf5Bytes& f_;
  FunctionRef<void(std::string, uint64_t)> found_;
  std::string_view names_;
  std::set<uint64_t> seen_;
};

// ---- fractal heaps

class FractalHeap {
 public:
  FractalHeap(const Hdf5Bytes& f, uint64_t address) : f_(f) {
    Hdf5Cursor in(f, f.all.substr(std::min<uint64_t>(address, f.all.size())), "a fractal heap");
    in.signature("FRHP");
    in.skip(1);
    id_size_ = in.number(2);
    if (in.number(2) != 0) f.lacks("a heap with filters");
    const uint64_t flags = in.byte();
    checksums_ = flags & 2;
    const uint64_t most = in.number(4);
    in.length();
    in.address();
    in.length();
    in.address();
    for (int i = 0; i < 8; ++i) in.length();  // counts of space and objects
    width_ = in.number(2);
    first_ = in.length();
    last_ = in.length();
    bits_ = in.number(2);
    in.skip(2);
    root_ = in.address();
    rows_ = in.number(2);
    if (width_ == 0 || first_ == 0 || last_ < first_ || bits_ == 0 || bits_ > 64 ||
        (first_ & (first_ - 1)) != 0 || (last_ & (last_ - 1)) != 0)
      f.fail("a fractal heap has impossible sizes");
    offset_size_ = static_cast<int>((bits_ + 7) / 8);
    length_size_ = std::min(width_of(last_), width_of(most));
  }

  uint64_t id_size() const { return id_size_; }

  std::string_view object(std::string_view id) const {
    Hdf5Cursor in(f_, id, "an id of a heap");
    const uint64_t head = in.byte(), kind = head >> 4 & 3;
    if (kind == 2) return in.bytes_of((head & 15) + 1);  // the bytes themselves
    if (kind != 0) f_.lacks("a huge object of a heap");
    const uint64_t offset = in.number(offset_size_), length = in.number(length_size_);
    if (rows_ == 0) return inside(root_, 0, first_, offset, length);
    return look_in(root_, 0, rows_, offset, length, 0);
  }

 private:
  std::string_view inside(uint64_t block, uint64_t begin, uint64_t size, uint64_t offset,
                          uint64_t length) const {
    if (offset < begin || offset - begin > size || length > size - (offset - begin))
      f_.fail("an object of a heap lies outside of its block");
    if (f_.at(block, 4, "a block of a heap") != "FHDB") f_.fail("a block of a heap is damaged");
    return f_.at(block, size, "a block of a heap").substr(offset - begin, length);
  }
  uint64_t row_size(uint64_t row) const {
    if (row > 64) f_.fail("a heap has too many rows");
    const uint64_t shift = row == 0 ? 0 : row - 1;
    if (shift >= 63 || first_ > (~uint64_t{0} >> shift)) f_.fail("a heap is too large");
    return first_ << shift;
  }
  // An indirect block: rows of `width_` children, each row's twice as large as those before; rows
  // beyond the largest direct block have indirect children.
  std::string_view look_in(uint64_t block, uint64_t begin, uint64_t rows, uint64_t offset,
                           uint64_t length, int depth) const {
    if (depth > 8) f_.fail("a heap is nested too deeply");
    Hdf5Cursor in(f_, f_.all.substr(std::min<uint64_t>(block, f_.all.size())), "a block of a heap");
    in.signature("FHIB");
    in.skip(1);
    in.address();
    in.number(offset_size_);
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t size = row_size(row);
      for (uint64_t i = 0; i < width_; ++i) {
        const uint64_t child = in.address();
        if (offset >= begin && offset - begin < size) {
          if (child == kNoHdf5Address) f_.fail("an object of a heap lies in no block");
          if (size <= last_) return inside(child, begin, size, offset, length);
          const uint64_t inner = log2_of(size) - log2_of(first_ * width_) + 1;
          return look_in(child, begin, inner, offset, length, depth + 1);
        }
        begin += size;
      }
    }
    f_.fail("an object lies outside of its heap");
  }

  const Hdf5Bytes& f_;
  uint64_t id_size_ = 0, width_ = 0, first_ = 0, last_ = 0, bits_ = 0, root_ = 0, rows_ = 0;
  int offset_size_ = 0, length_size_ = 0;
  bool checksums_ = false;
};

// ---- B-trees of version 2

class ModernTree {
 public:
  ModernTree(const Hdf5Bytes& f, uint64_t address, FunctionRef<void(std::string_view)> found)
      : f_(f), found_(found) {
    Hdf5Cursor in(f, f.all.substr(std::min<uint64_t>(address, f.all.size())), "a tree");
    in.signature("BTHD");
    in.skip(1);
    type_ = in.byte();
    node_ = in.number(4);
    record_ = in.number(2);
    depth_ = in.number(2);
    in.skip(2);
    root_ = in.address();
    records_ = in.number(2);
    if (record_ == 0 || node_ < 16 || depth_ > 8) f.fail("a tree has impossible sizes");
    levels();
  }
  uint64_t type() const { return type_; }
  void run() {
    if (root_ != kNoHdf5Address) node(root_, records_, depth_);
  }

 private:
  void levels() {
    const uint64_t prefix = 10;
    uint64_t most = (node_ - prefix) / record_, all = most;
    count_size_ = width_of(most);
    all_size_.push_back(0);
    for (uint64_t level = 1; level <= depth_; ++level) {
      const uint64_t pointer = static_cast<uint64_t>(f_.offset_size + count_size_) +
                               static_cast<uint64_t>(all_size_.back());
      if (node_ < prefix + pointer + record_) f_.fail("a tree has impossible sizes");
      most = (node_ - prefix - pointer) / (record_ + pointer);
      all = (most + 1) * all + most;
      all_size_.push_back(width_of(all));
    }
  }
  void node(uint64_t address, uint64_t count, uint64_t level) {
    if (!seen_.insert(address).second) f_.fail("a tree leads back into itself");
    Budget::check_time();
    Hdf5Cursor in(f_, f_.at(address, std::min<uint64_t>(node_, f_.all.size()), "a node of a tree"),
                  "a node of a tree");
    in.signature(level == 0 ? "BTLF" : "BTIN");
    in.skip(2);
    for (uint64_t i = 0; i < count; ++i) {
      Budget::count();
      found_(in.bytes_of(record_));
    }
    if (level == 0) return;
    for (uint64_t i = 0; i <= count; ++i) {
      const uint64_t child = in.address(), n = in.number(count_size_);
      if (level > 1) in.number(all_size_[level - 1]);
      node(child, n, level - 1);
    }
  }

  const Hdf5Bytes& f_;
  FunctionRef<void(std::string_view)> found_;
  uint64_t type_ = 0, node_ = 0, record_ = 0, depth_ = 0, root_ = 0, records_ = 0;
  int count_size_ = 0;
  std::vector<int> all_size_;
  std::set<uint64_t> seen_;
};

/// A link as a message.
void link_of(const Hdf5Bytes& f, std::string_view data,
             FunctionRef<void(std::string, uint64_t)> found) {
  Hdf5Cursor in(f, data, "a link");
  if (in.byte() != 1) f.fail("a link has an unknown version");
  const uint64_t flags = in.byte();
  const uint64_t kind = flags & 8 ? in.byte() : 0;
  if (flags & 4) in.skip(8);
  if (flags & 16) in.skip(1);
  std::string name(in.bytes_of(in.number(1 << (flags & 3))));
  if (kind == 0) found(std::move(name), in.address());
}

}  // namespace

void each_hdf5_heap_object(const Hdf5Bytes& f, uint64_t heap, uint64_t tree,
                           FunctionRef<void(std::string_view)> found) {
  const FractalHeap objects(f, heap);
  uint64_t type = 0;
  const auto take = [&](std::string_view record) {
    // Links by name: a hash, the id. Attributes by name: the id, and more.
    const uint64_t before = type == 5 ? 4 : 0;
    if (record.size() < before + objects.id_size()) f.fail("a record of a tree is truncated");
    found(objects.object(record.substr(before, objects.id_size())));
  };
  ModernTree t(f, tree, take);
  type = t.type();
  if (type != 5 && type != 8) f.fail(fmt::format("a group's tree is of type {}", type));
  t.run();
}

void each_hdf5_link(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages,
                    FunctionRef<void(std::string, uint64_t)> found) {
  for (const Hdf5Message& m : messages) {
    if (m.type == kSymbolTable) OldGroup(f, found).run(m.data);
    if (m.type == kLink) link_of(f, m.data, found);
  }
  const Hdf5Message* info = find_hdf5_message(messages, kLinkInfo);
  if (!info) return;
  Hdf5Cursor in(f, info->data, "the list of links");
  in.skip(1);
  if (in.byte() & 1) in.skip(8);
  const uint64_t heap = in.address(), tree = in.address();
  if (heap == kNoHdf5Address) return;
  each_hdf5_heap_object(f, heap, tree, [&](std::string_view data) { link_of(f, data, found); });
}

}  // namespace tandem::io
