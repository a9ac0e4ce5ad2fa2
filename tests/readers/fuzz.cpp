// SPDX-License-Identifier: Apache-2.0
// libFuzzer over one reader of the table: any bytes are read as its kind of file, or refused; any
// other exception fails the program. The environment names the reader, TANDEM_FUZZ=flac, and a
// folder for its valid files, TANDEM_FUZZ_SEEDS. `--list` names all readers.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tandem/base/files/file.h"
#include "tandem/init.h"
#include "tests/readers/readers.h"

using namespace tandem;

namespace {
const readers::Reader* g_reader = nullptr;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  init();
  if (*argc > 1 && std::strcmp((*argv)[1], "--list") == 0) {
    for (const readers::Reader& r : readers::readers()) std::puts(r.name);
    std::exit(0);
  }
  const char* name = std::getenv("TANDEM_FUZZ");
  g_reader = &readers::find_reader(name ? name : "");
  if (const char* folder = std::getenv("TANDEM_FUZZ_SEEDS")) {
    const auto seeds = readers::seeds_of(*g_reader);
    for (size_t i = 0; i < seeds.size(); ++i)
      write_file(std::string(folder) + "/seed" + std::to_string(i), seeds[i]);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  readers::Random random(seed);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (random() % 2 == 0) {
    readers::mutate(*g_reader, bytes, random);
  } else {
    bytes.resize(most);
    bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, most));
    if (g_reader->repair && random() % 4 != 0) g_reader->repair(bytes);
  }
  if (bytes.size() > most) bytes.resize(most);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  readers::try_reading(*g_reader, {reinterpret_cast<const char*>(data), size});
  return 0;
}
