# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for arm64 on Debian: gcc-aarch64-linux-gnu, and the libraries' arm64 packages beside the machine's own
# ("dpkg --add-architecture arm64"). Where qemu-user is installed, ctest runs the tests in it.
# usage: cmake --preset arm64, or -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Without these, pkg-config and find_library would take the machine's own libraries.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
set(CMAKE_IGNORE_PATH /usr/lib/x86_64-linux-gnu /lib/x86_64-linux-gnu)
find_program(YOKE_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(YOKE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${YOKE_QEMU})
endif()
