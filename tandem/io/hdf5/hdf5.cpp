// SPDX-License-Identifier: Apache-2.0
// The superblock, object headers, attributes, and the public face.
#include "tandem/io/hdf5/hdf5.h"

#include <algorithm>

#include "tandem/io/hdf5/hdf5_internal.h"

namespace tandem::io {
namespace {

constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
constexpr int kContinuation = 0x10, kDataspace = 0x1, kDatatype = 0x3, kAttribute = 0xC,
              kAttributeInfo = 0x15;
constexpr int kShared = 2;  // a message's flag: the data stand elsewhere

/// Where the superblock is: at 0, or at 512, 1024, 2048 ...
size_t find_signature(std::string_view content) {
  for (size_t at = 0; at < content.size() && content.size() - at >= kSignature.size();
       at = at == 0 ? 512 : 2 * at)
    if (content.substr(at).starts_with(kSignature)) return at;
  return std::string_view::npos;
}

void read_superblock(Hdf5Bytes& f) {
  Hdf5Cursor in(f, f.all, "the superblock");
  in.signature(kSignature);
  const uint64_t version = in.byte();
  if (version > 3) f.fail(fmt::format("the superblock has the version {}", version));
  if (version < 2) in.skip(4);
  f.offset_size = static_cast<int>(in.byte());
  f.length_size = static_cast<int>(in.byte());
  for (const int n : {f.offset_size, f.length_size})
    if (n != 2 && n != 4 && n != 8) f.fail(fmt::format("its addresses have {} bytes", n));
  in.skip(1);
  if (version >= 2) {
    in.skip(3 * static_cast<uint64_t>(f.offset_size));
    f.root = in.address();
    return;
  }
  in.skip(8);                    // sizes of tree nodes, flags
  if (version == 1) in.skip(4);  // sizes of chunks' tree nodes
  in.skip(4 * static_cast<uint64_t>(f.offset_size));
  in.skip(static_cast<uint64_t>(f.offset_size));  // of the root's name
  f.root = in.address();
}

/// Messages of a header, and its continuation blocks.
class HeaderReader {
 public:
  explicit HeaderReader(const Hdf5Bytes& f) : f_(f) {}

  std::vector<Hdf5Message> run(uint64_t address) {
    Budget::check_time();
    const bool modern = f_.at(address, 4, "an object's header") == "OHDR";
    Hdf5Cursor in(f_, f_.all.substr(address), "an object's header");
    modern ? start_modern(in) : start_old(in);
    for (size_t i = 0; i < more_.size(); ++i) {
      const auto [at, size] = more_[i];
      if (size == 0 || size > f_.all.size() - read_)  // all of them are parts of the file
        f_.fail("an object's header leads back into itself");
      read_ += size;
      std::string_view block = f_.at(at, size, "the continuation of a header");
      if (modern) {
        if (!block.starts_with("OCHK") || size < 8)
          f_.fail("the continuation of a header does not begin with 'OCHK'");
        block = block.substr(4, size - 8);
      }
      messages(block);
    }
    return std::move(out_);
  }

 private:
  void start_old(Hdf5Cursor& in) {
    if (in.byte() != 1) f_.fail("an object's header has an unknown version");
    in.skip(7);
    const uint64_t size = in.number(4);
    in.skip(4);
    messages(in.bytes_of(size));
  }
  void start_modern(Hdf5Cursor& in) {
    modern_ = true;
    in.signature("OHDR");
    if (in.byte() != 2) f_.fail("an object's header has an unknown version");
    const uint64_t flags = in.byte();
    ordered_ = flags & 4;
    if (flags & 0x20) in.skip(16);
    if (flags & 0x10) in.skip(4);
    messages(in.bytes_of(in.number(1 << (flags & 3))));
  }
  void messages(std::string_view block) {
    Hdf5Cursor in(f_, block, "a message");
    const size_t head = modern_ ? (ordered_ ? 6 : 4) : 8;
    while (in.left() >= head) {
      Budget::count();
      const int type = static_cast<int>(in.number(modern_ ? 1 : 2));
      const uint64_t size = in.number(2), flags = in.byte();
      in.skip(modern_ ? (ordered_ ? 2 : 0) : 3);
      const std::string_view data = in.bytes_of(size);
      if (type == kContinuation) {
        Hdf5Cursor where(f_, data, "a continuation");
        const uint64_t at = where.address();
        more_.emplace_back(at, where.length());
      } else if (flags & kShared) {
        if (type == kDatatype || type == kDataspace || type == kAttribute)
          f_.lacks("a type or attribute shared by several objects");
      } else if (type != 0) {
        out_.push_back({type, data});
      }
    }
  }

  const Hdf5Bytes& f_;
  bool modern_ = false, ordered_ = false;
  uint64_t read_ = 0;  ///< bytes of continuations
  std::vector<Hdf5Message> out_;
  std::vector<std::pair<uint64_t, uint64_t>> more_;
};

Hdf5Attribute attribute_of(const Hdf5Bytes& f, std::string_view data) {
  Hdf5Cursor in(f, data, "an attribute");
  const uint64_t version = in.byte(), flags = in.byte();
  if (version < 1 || version > 3) f.fail(fmt::format("an attribute has the version {}", version));
  if (version > 1 && flags != 0) f.lacks("an attribute with a shared type");
  const uint64_t name = in.number(2), type = in.number(2), space = in.number(2);
  if (version == 3) in.skip(1);
  // In version 1 every part is padded to 8 bytes.
  const auto part = [&](uint64_t n) {
    return in.bytes_of(version == 1 ? (n + 7) / 8 * 8 : n).substr(0, n);
  };
  Hdf5Attribute a;
  a.name = std::string(part(name));
  if (const size_t end = a.name.find('\0'); end != std::string::npos) a.name.resize(end);
  a.type = hdf5_type(f, part(type));
  a.shape = hdf5_shape(f, part(space));
  a.data = in.rest();
  return a;
}

}  // namespace

std::vector<Hdf5Message> hdf5_messages(const Hdf5Bytes& f, uint64_t header) {
  return HeaderReader(f).run(header);
}

const Hdf5Message* find_hdf5_message(const std::vector<Hdf5Message>& all, int type) {
  for (const Hdf5Message& m : all)
    if (m.type == type) return &m;
  return nullptr;
}

void each_hdf5_attribute(const Hdf5Bytes& f, const std::vector<Hdf5Message>& messages,
                         FunctionRef<void(const Hdf5Attribute&)> found) {
  for (const Hdf5Message& m : messages)
    if (m.type == kAttribute) found(attribute_of(f, m.data));
  const Hdf5Message* info = find_hdf5_message(messages, kAttributeInfo);
  if (!info) return;
  Hdf5Cursor in(f, info->data, "the list of attributes");
  in.skip(1);
  if (in.byte() & 1) in.skip(2);
  const uint64_t heap = in.address(), tree = in.address();
  if (heap == kNoHdf5Address) return;
  each_hdf5_heap_object(f, heap, tree,
                        [&](std::string_view data) { found(attribute_of(f, data)); });
}

struct Hdf5File::State {
  Hdf5Bytes f;
};

bool Hdf5File::is_hdf5(std::string_view content) {
  return find_signature(content) != std::string_view::npos;
}

Hdf5File::Hdf5File(const FilePath& path) : state_(new State) {
  Hdf5Bytes& f = state_->f;
  f.file = make_ref<MappedFile>(path);
  f.name = path.str();
  const size_t at = find_signature(f.file->view());
  if (at == std::string_view::npos) f.fail("this is not an HDF5 file");
  f.all = f.file->view().substr(at);
  read_superblock(f);
}

Hdf5File::Hdf5File(std::string bytes, const std::string& name) : state_(new State) {
  Hdf5Bytes& f = state_->f;
  f.own = std::move(bytes);
  f.name = name;
  const size_t at = find_signature(f.own);
  if (at == std::string_view::npos) f.fail("this is not an HDF5 file");
  f.all = std::string_view(f.own).substr(at);
  read_superblock(f);
}

Hdf5File::~Hdf5File() = default;

const std::string& Hdf5File::name() const { return state_->f.name; }
Hdf5File::Object Hdf5File::root() const { return state_->f.root; }

bool Hdf5File::is_dataset(Object o) const {
  return find_hdf5_message(hdf5_messages(state_->f, o), kDatatype) != nullptr;
}

std::map<std::string, Hdf5File::Object> Hdf5File::links(Object group) const {
  std::map<std::string, Object> out;
  each_hdf5_link(state_->f, hdf5_messages(state_->f, group),
                 [&](std::string name, uint64_t header) {
                   const bool fresh = out.emplace(std::move(name), header).second;
                   if (!fresh) state_->f.fail("a group has two links of one name");
                 });
  return out;
}

bool Hdf5File::find(Object group, std::string_view path, Object& found) const {
  found = group;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string part(path.substr(0, slash));
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
    if (part.empty()) continue;
    const std::map<std::string, Object> all = links(found);
    const auto it = all.find(part);
    if (it == all.end()) return false;
    found = it->second;
  }
  return true;
}

std::vector<std::string> Hdf5File::attributes(Object o) const {
  std::vector<std::string> out;
  each_hdf5_attribute(state_->f, hdf5_messages(state_->f, o),
                      [&](const Hdf5Attribute& a) { out.push_back(a.name); });
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> Hdf5File::texts(Object o, const std::string& attribute) const {
  const Hdf5Bytes& f = state_->f;
  std::vector<std::string> out;
  each_hdf5_attribute(f, hdf5_messages(f, o), [&](const Hdf5Attribute& a) {
    if (a.name != attribute) return;
    const uint64_t n = hdf5_count(f, a.shape);
    if (n == 0) return;  // h5py writes an empty list as numbers
    if (a.type.kind != Hdf5Type::Kind::text && a.type.kind != Hdf5Type::Kind::variable_text)
      f.fail(fmt::format("the attribute '{}' holds no strings", attribute));
    out = hdf5_texts(f, a.type, n, a.data);
  });
  return out;
}

Tensor Hdf5File::tensor(Object dataset) const {
  return read_hdf5_dataset(state_->f, hdf5_messages(state_->f, dataset));
}

bool Hdf5File::is_text(Object dataset) const {
  const std::vector<Hdf5Message> all = hdf5_messages(state_->f, dataset);
  const Hdf5Message* type = find_hdf5_message(all, kDatatype);
  if (!type) return false;
  const Hdf5Type::Kind kind = hdf5_type(state_->f, type->data).kind;
  return kind == Hdf5Type::Kind::text || kind == Hdf5Type::Kind::variable_text;
}

}  // namespace tandem::io
