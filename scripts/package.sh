#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian packages yoke, libyoke0 and libyoke-dev in build/package, for the release of Debian that it runs on:
# libraries differ between releases. Hardened as Debian's own packages are; without CUDA, with MPI where there is one.
# usage: scripts/package.sh [CMAKE OPTION...]   -DYOKE_PACKAGE_CONTACT='Name <address>' is who answers for the packages
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-deps.sh --packages
export DEB_BUILD_MAINT_OPTIONS=hardening=+bindnow
export DEB_CFLAGS_MAINT_STRIP=-g
CFLAGS="$(dpkg-buildflags --get CFLAGS) $(dpkg-buildflags --get CPPFLAGS)"
LDFLAGS=$(dpkg-buildflags --get LDFLAGS)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export CFLAGS LDFLAGS SOURCE_DATE_EPOCH
rm -rf build/package/_CPack_Packages build/package/*.deb
cmake --preset package "$@"
cmake --build --preset package
(cd build/package && cpack)

# cpack adds scripts that run ldconfig; the package's trigger does that once for an installation of many packages.
library=$(ls build/package/libyoke[0-9]*.deb)
dpkg-deb -R "$library" build/package/library
rm build/package/library/DEBIAN/{postinst,postrm}
dpkg-deb --root-owner-group -b build/package/library "$library" >/dev/null
rm -r build/package/library

for package in build/package/*.deb; do
    echo "$package: $((($(stat -c %s "$package") + 1023) / 1024)) KiB, installed $(dpkg-deb -f "$package" Installed-Size) KiB"
    echo "    depends on $(dpkg-deb -f "$package" Depends)"
done
