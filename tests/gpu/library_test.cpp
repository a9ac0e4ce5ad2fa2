// SPDX-License-Identifier: Apache-2.0
// Nothing of a GPU is linked, nothing is opened before somebody asks, and where a library is off
// the reason is exact. CUDA's text of every kernel compiles for every architecture.
#include <link.h>

#include <filesystem>
#include <fstream>

#include "tandem/backend/gpu/cuda/library_internal.h"
#include "tandem/backend/gpu/cuda/nvrtc.h"
#include "tandem/backend/gpu/doctor.h"
#include "tandem/backend/gpu/library_internal.h"
#include "tests/gpu/drivers_helper.h"
#include "tests/io/io_helper.h"
#include "tests/support/environment.h"

namespace tandem::gpu {
namespace {

const char* const kForeign[] = {"libcuda",  "libnvrtc",  "libcudart", "libcublas",
                                "libcudnn", "libOpenCL", "libpocl",   "libnccl"};

// What this program, which holds the whole library, names in its dynamic section.
TEST(Libraries, NoneOfAGpuIsNeeded) {
  const char* strings = nullptr;
  for (const ElfW(Dyn)* d = _DYNAMIC; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(d->d_un.d_ptr);
  }
  ASSERT_NE(strings, nullptr);
  int needed = 0;
  for (const ElfW(Dyn)* d = _DYNAMIC; d->d_tag != DT_NULL; ++d) {
    if (d->d_tag != DT_NEEDED) continue;
    ++needed;
    const std::string name = strings + d->d_un.d_val;
    for (const char* foreign : kForeign) EXPECT_EQ(name.find(foreign), std::string::npos) << name;
  }
  EXPECT_GT(needed, 2);  // libc at least
}

std::string foreign_in_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    for (const char* foreign : kForeign) {
      if (line.find(foreign) != std::string::npos) return line;
    }
  }
  return "";
}

// A real library that may be copied under other names.
std::string path_of_libm() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libm.so") != std::string::npos) return line.substr(line.find('/'));
  }
  return "";
}

TEST(LibrariesDeathTest, InitOpensNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own
  EXPECT_EXIT(
      {
        init();
        std::exit(foreign_in_memory().empty() ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

TEST(Libraries, WhyOneIsOff) {
  TempFolder f;
  std::ofstream(f / "libnothing.so.3") << "no library";
  const Environment none("TANDEM_GPU_LIBRARIES", "");
  EXPECT_EQ(open_library({"libnothing.so.4", "libnothing.so.2"}, false).problem,
            "libnothing.so.4, libnothing.so.2 not found: looked where the system's loader looks "
            "(TANDEM_GPU_LIBRARIES names more folders)");
  const Environment own("TANDEM_GPU_LIBRARIES", "/nowhere:" + (f / "."));
  EXPECT_EQ(open_library({"libnothing.so.4"}, true).problem,
            "libnothing.so.4 not found: looked where the system's loader looks, in nvidia/*/lib of "
            "Python's packages and in TANDEM_GPU_LIBRARIES");
  const Library broken = open_library({"libnothing.so.4", "libnothing.so.3"}, false);
  EXPECT_EQ(broken.handle, nullptr);
  EXPECT_NE(broken.problem.find("libnothing.so.3: file too short"), std::string::npos)
      << broken.problem;
}

TEST(Libraries, PythonsPackagesAreLookedThrough) {
  TempFolder f;
  const std::string lib = f / "lib/python3.99/site-packages/nvidia/cu99/lib";
  std::filesystem::create_directories(lib);
  const std::string libm = path_of_libm();
  if (libm.empty()) GTEST_SKIP() << "no libm in this process";
  std::filesystem::copy_file(libm, lib + "/libtandem_wheel.so.1");
  const Environment venv("VIRTUAL_ENV", f / ".");
  EXPECT_EQ(open_library({"libtandem_wheel.so.1"}, false).handle, nullptr);
  const Library found = open_library({"libtandem_wheel.so.1"}, true);
  ASSERT_NE(found.handle, nullptr) << found.problem;
  EXPECT_NE(found.path.find("nvidia/cu99/lib/libtandem_wheel.so.1"), std::string::npos);
}

// A library of the name that lacks the functions.
TEST(Libraries, AnOldDriverIsNamedWithWhatItLacks) {
  TempFolder f;
  const std::string libm = path_of_libm();
  if (libm.empty()) GTEST_SKIP() << "no libm in this process";
  std::filesystem::copy_file(libm, f / "libcuda.so.1");
  const Environment own("TANDEM_GPU_LIBRARIES", f / ".");
  const CudaLibrary cuda = open_cuda();
  EXPECT_EQ(cuda.devices, 0);
  EXPECT_NE(cuda.report.problem.find("libcuda.so.1 is older than version 12: it lacks cuInit, "),
            std::string::npos)
      << cuda.report.problem;
  EXPECT_EQ(cuda.no_devices, cuda.report.problem);
}

TEST(Nvrtc, CompilesEveryKernelForEveryArchitectureWithoutSpills) {
  if (!no_nvrtc().empty()) GTEST_SKIP() << no_nvrtc();
  const std::vector<KernelSource> kernels = all_kernels(true);
  for (const int arch : {75, 80, 86, 89, 90, 100, 120}) {
    std::string code, log;
    ASSERT_OK(compile_cuda(kernels, arch, code, log));
    EXPECT_GT(code.size(), 1000u) << arch;
    size_t reports = 0;
    for (size_t at = log.find("bytes spill stores"); at != std::string::npos;
         at = log.find("bytes spill stores", at + 1)) {
      EXPECT_EQ(log.substr(at - 2, 2), "0 ") << arch << "\n" << log;
      ++reports;
    }
    EXPECT_EQ(reports, kernels.size()) << log;
  }
}

TEST(Nvrtc, SaysWhatDoesNotCompile) {
  if (!no_nvrtc().empty()) GTEST_SKIP() << no_nvrtc();
  KernelSource k = fill_kernel(DType::f32);
  k.body = "y[0] = nobody_knows_this;";
  std::string code, log;
  EXPECT_FAILS(compile_cuda({&k, 1}, 90, code, log), build, "nobody_knows_this");
  EXPECT_FALSE(compile_cuda({&k, 1}, 1, code, log).ok());  // no such architecture
}

TEST(GpuDoctor, NamesLibrariesAndDevices) {
  init();
  const std::string text = doctor();
  for (const char* name : {"CUDA driver: ", "NVRTC:", "OpenCL:", "fake:0:      emulated device"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << " in\n" << text;
  }
  int devices = 0;
  for (Driver* driver : drivers()) {
    const Status status = driver->count(devices);
    if (status.ok()) {
      EXPECT_NE(text.find(std::string(driver->name()) + ":0:"), std::string::npos) << text;
    } else {
      EXPECT_NE(text.find(status.text()), std::string::npos) << text;
    }
  }
}

TEST(DriverNames, AreThree) {
  EXPECT_STREQ(driver_named("opencl").name(), "opencl");
  try {
    driver_named("vulkan");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "no driver is called vulkan; there are cuda, opencl and fake");
  }
}

}  // namespace
}  // namespace tandem::gpu
