// SPDX-License-Identifier: Apache-2.0
// Texts of the folder for Apple's systems; @GAPS@ are filled by apple.cpp.
#pragma once

namespace tandem::edge {

inline constexpr const char* kApplePackage = R"T(// swift-tools-version:5.7
// Written by `tandem compile --target apple`.
import PackageDescription

let package = Package(
  name: "@CLASS@",
  products: [
    .library(name: "@CLASS@", targets: ["@CLASS@"]),
    .library(name: "@CLASS@Tandem", targets: ["C@CLASS@Tandem"]),  // tandem_c.h, for one net of a program
  ],
  targets: [
    .target(name: "C@CLASS@"),
    .target(name: "C@CLASS@Tandem", dependencies: ["C@CLASS@"]),
    .target(name: "@CLASS@", dependencies: ["C@CLASS@"]),
  ])
)T";

inline constexpr const char* kAppleModuleMap = R"T(module C@CLASS@ {
  header "@NAME@.h"
  export *
}
)T";

inline constexpr const char* kAppleCModuleMap = R"T(module C@CLASS@Tandem {
  header "tandem_c.h"
  export *
}
)T";

inline constexpr const char* kAppleClass = R"T(// Written by `tandem compile --target apple`.
import C@CLASS@

/// The net: arrays in, arrays out, row-major. An object serves one thread at a time.
public final class @CLASS@ {
  /// Bytes of the memory that a call works in.
  public static let arenaBytes = Int(@MACRO@_ARENA_BYTES)

  /// The results of a call.
  public struct Outputs {
@FIELDS@  }

  public enum Failure: Error {
    /// An array has another number of elements.
    case size(name: String, given: Int, expected: Int)
    /// An index in an input is out of range.
    case index
  }

  private let arena: UnsafeMutableRawPointer

  public init() {
    arena = UnsafeMutableRawPointer.allocate(byteCount: @CLASS@.arenaBytes, alignment: 16)
  }

  deinit { arena.deallocate() }

  /// Runs the net.
@DOCS@  public func run(@PARAMETERS@) throws -> Outputs {
@CHECKS@@ARRAYS@    guard @NAME@_run_in(arena@ARGUMENTS@) == 0 else { throw Failure.index }
    return Outputs(@RESULTS@)
  }

  private static func check(_ name: String, _ given: Int, _ expected: Int) throws {
    guard given == expected else {
      throw Failure.size(name: name, given: given, expected: expected)
    }
  }
}
)T";

inline constexpr const char* kAppleScript = R"T(#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes @CLASS@.xcframework, a static library for iPhones, simulators and Macs. Needs clang with its archiver and
# lipo: Xcode's, or LLVM's on any system (CLANG, AR and LIPO name others).
set -e
cd "$(dirname "$0")"
if command -v xcrun > /dev/null; then find="xcrun -f"; else find=; fi
clang=${CLANG:-${find:+$($find clang)}} ar=${AR:-${find:+$($find ar)}} lipo=${LIPO:-${find:+$($find lipo)}}
out=@CLASS@.xcframework
rm -rf work
slice() { # folder, then targets
  folder=$out/$1
  mkdir -p "$folder/Headers" work
  shift
  thin=
  for target; do
    for source in C@CLASS@/@NAME@ C@CLASS@Tandem/tandem_mini; do
      "${clang:-clang}" --target=$target -ffreestanding -std=c99 -O3 -ffp-contract=off -I Sources/C@CLASS@/include \
        -I Sources/C@CLASS@Tandem/include -c Sources/$source.c -o work/${source#*/}.o
    done
    rm -f work/$target.a
    "${ar:-llvm-ar}" rcs work/$target.a work/@NAME@.o work/tandem_mini.o
    thin="$thin work/$target.a"
  done
  "${lipo:-llvm-lipo}" -create $thin -output "$folder/lib@NAME@.a"
  cp Sources/C@CLASS@/include/* Sources/C@CLASS@Tandem/include/tandem_c.h "$folder/Headers/"
}
slice ios-arm64 arm64-apple-ios13.0
slice ios-arm64_x86_64-simulator arm64-apple-ios13.0-simulator x86_64-apple-ios13.0-simulator
slice macos-arm64_x86_64 arm64-apple-macos11.0 x86_64-apple-macos11.0
rm -rf work
)T";

inline constexpr const char* kApplePlist = R"T(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>AvailableLibraries</key>
  <array>
@LIBRARIES@  </array>
  <key>CFBundlePackageType</key>
  <string>XFWK</string>
  <key>XCFrameworkFormatVersion</key>
  <string>1.0</string>
</dict>
</plist>
)T";

}  // namespace tandem::edge
