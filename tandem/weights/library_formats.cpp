// SPDX-License-Identifier: Apache-2.0
// The formats of single files: PyTorch's, NumPy's and safetensors.
#include "tandem/io/npy.h"
#include "tandem/io/safetensors.h"
#include "tandem/io/zip_internal.h"
#include "tandem/weights/formats.h"
#include "tandem/weights/torch_file.h"

namespace tandem::weights {
namespace {

bool holds_torch(std::string_view content, const FilePath& path) {
  if (content.starts_with("\x80\x02")) return true;
  if (!content.starts_with("PK")) return false;
  const io::ZipReader zip(path);
  for (const io::ZipMember& m : zip.members())
    if (m.name == "data.pkl" || m.name.ends_with("/data.pkl")) return true;
  return false;
}
StateDict read_torch(const FilePath& path) { return load_torch_state(path); }
void write_torch(const StateDict& tensors, const FilePath& path) {
  save_torch(TorchValue(tensors), path);
}

bool holds_npz(std::string_view content, const FilePath&) { return content.starts_with("PK"); }
StateDict read_npz(const FilePath& path) { return io::load_npz(path); }
void write_npz(const StateDict& tensors, const FilePath& path) { io::save_npz(tensors, path); }

bool holds_safetensors(std::string_view content, const FilePath&) {
  return content.size() > 8 && content[8] == '{';
}
StateDict read_safetensors(const FilePath& path) { return load(path); }
void write_safetensors(const StateDict& tensors, const FilePath& path) { save(tensors, path); }

}  // namespace

namespace format_rows {
constinit const WeightsFormat torch = {
    {"torch", "Files of torch.save, read without running pickle.", "model.pth"},
    "PyTorch",
    ".pth .pt .bin",
    holds_torch,
    read_torch,
    write_torch};
constinit const WeightsFormat npz = {{"npz", "Arrays by name in NumPy's zip file.", "model.npz"},
                                     "NumPy npz",
                                     ".npz",
                                     holds_npz,
                                     read_npz,
                                     write_npz};
constinit const WeightsFormat safetensors = {
    {"safetensors", "A JSON header and the tensors' bytes, mapped.", "model.safetensors"},
    "safetensors",
    ".safetensors",
    holds_safetensors,
    read_safetensors,
    write_safetensors};
}  // namespace format_rows

}  // namespace tandem::weights
