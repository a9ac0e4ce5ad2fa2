// SPDX-License-Identifier: Apache-2.0
// Texts of the folder for Android; @GAPS@ are filled by android.cpp.
#pragma once

namespace tandem::edge {

inline constexpr const char* kAndroidGradle = R"T(// SPDX-License-Identifier: Apache-2.0
// Written by `tandem compile --target android`: a library module for an app's project.
plugins { id 'com.android.library' }

android {
    namespace '@PACKAGE@'
    compileSdk 34
    defaultConfig {
        minSdk 21
        externalNativeBuild { cmake { arguments '-DANDROID_STL=none' } }
    }
    externalNativeBuild { cmake { path 'src/main/cpp/CMakeLists.txt' } }
}
)T";

inline constexpr const char* kAndroidManifest =
    R"T(<manifest xmlns:android="http://schemas.android.com/apk/res/android"@ATTRIBUTES@>@CONTENT@</manifest>
)T";

// Pages of 16 KB: what Android 15 asks of libraries.
inline constexpr const char* kAndroidCmake = R"T(# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.18)
project(@NAME@_jni C)
add_library(@NAME@_jni SHARED @NAME@.c @NAME@_jni.c tandem_mini.c)
target_compile_options(@NAME@_jni PRIVATE -std=c99 -O3 -ffp-contract=off -fvisibility=hidden)
target_link_options(@NAME@_jni PRIVATE -Wl,-z,max-page-size=16384)
)T";

inline constexpr const char* kAndroidScript = R"T(#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes @NAME@.aar without Gradle. Needs a JDK and the NDK's folder in ANDROID_NDK_HOME.
set -e
cd "$(dirname "$0")"
bin=$(echo "${ANDROID_NDK_HOME:?give the folder of the NDK}"/toolchains/llvm/prebuilt/*/bin)
rm -rf aar classes
for abi in arm64-v8a:aarch64-linux-android armeabi-v7a:armv7a-linux-androideabi x86_64:x86_64-linux-android; do
  to=aar/jni/${abi%%:*}
  mkdir -p "$to"
  "$bin/clang" "--target=${abi#*:}21" -std=c99 -O3 -ffp-contract=off -fvisibility=hidden -fPIC -shared \
    -Wl,-z,max-page-size=16384 -o "$to/lib@NAME@_jni.so" src/main/cpp/@NAME@.c src/main/cpp/@NAME@_jni.c \
    src/main/cpp/tandem_mini.c
done
javac --release 8 -Xlint:-options -d classes $(find src/main/java -name '*.java')
jar cf aar/classes.jar -C classes .
: > aar/R.txt
cp AndroidManifest.xml aar/
(cd aar && jar cMf ../@NAME@.aar AndroidManifest.xml classes.jar R.txt jni)
rm -rf aar classes
)T";

inline constexpr const char* kAndroidClass = R"T(// SPDX-License-Identifier: Apache-2.0
// Written by `tandem compile --target android`.
package @PACKAGE@;

import java.nio.ByteBuffer;

/** The net: arrays in, arrays out, row-major. Calls of one object wait for each other. */
public final class @CLASS@ {
  /** Bytes of the memory that a call works in. */
  public static final int ARENA_BYTES = @ARENA@;

  /** The results of a call. */
  public static final class Outputs {
@FIELDS@  }

  static {
    System.loadLibrary("@NAME@_jni");
  }

  private final ByteBuffer arena = ByteBuffer.allocateDirect(ARENA_BYTES + 8);

  /**
   * Runs the net.
   *
@DOCS@   * @throws IllegalArgumentException an array has another number of elements, or an index in it is
   *     out of range
   */
  public synchronized Outputs run(@PARAMETERS@) {
@CHECKS@    Outputs outputs_ = new Outputs();
    if (runIn(arena@ARGUMENTS@) != 0) {
      throw new IllegalArgumentException("an index is out of range");
    }
    return outputs_;
  }

  private static void check(String name, int given, int expected) {
    if (given != expected) {
      throw new IllegalArgumentException(
          name + " has " + given + " elements, expected " + expected);
    }
  }

  private static native int runIn(ByteBuffer arena@NATIVE@);
}
)T";

// Elements that could not be had leave an exception behind, which Java throws.
inline constexpr const char* kAndroidJni = R"T(/* SPDX-License-Identifier: Apache-2.0 */
/* Written by `tandem compile --target android`: the native half of @CLASS@.java. */
#include <jni.h>
#include <stdint.h>

@HEADER@

JNIEXPORT jint JNICALL Java_@MANGLED@_runIn(JNIEnv *env, jclass self, jobject arena@PARAMETERS@) {
  char *bytes = (char *)(*env)->GetDirectBufferAddress(env, arena);
  jint status = -1;
@VALUES@  (void)self;
  bytes += (8 - (uintptr_t)bytes % 8) % 8;
@GETS@  if (@ALL@) status = @NAME@_run_in(bytes@ARGUMENTS@);
@RELEASES@  return status;
}
)T";

}  // namespace tandem::edge
