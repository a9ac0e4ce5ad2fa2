// SPDX-License-Identifier: Apache-2.0
// Models for phones: the C99 file with what Android and Apple's systems want around it. Nothing is
// compiled here; scripts beside the sources do that with the systems' own compilers.
// `tandem compile --target android` and `--target apple` write these to a folder.
#pragma once

#include "tandem/edge/edge.h"
#include "tandem/edge/folder_files.h"

namespace tandem::edge {

struct PhoneOptions {
  std::string name = "net";            ///< that of EdgeOptions
  std::string package = "net.tandem";  ///< of the Java class
};

/// A module for Gradle (build.gradle, CMakeLists.txt, manifest), a class in Java whose run() takes
/// and gives arrays, its half in C over JNI, and make_aar.sh, which makes NAME.aar with the NDK and
/// a JDK alone. The library exports the functions of tandem_c.h for this net as well. Throws Value
/// for a package that is no Java name.
TD_API FolderFiles write_android(const EdgeSource& net, const PhoneOptions& options = {});

/// A Swift package: the C file as a module with its module map, a class in Swift over it, and
/// make_xcframework.sh, which makes Name.xcframework of it for devices, simulators and Macs.
TD_API FolderFiles write_apple(const EdgeSource& net, const PhoneOptions& options = {});

}  // namespace tandem::edge
