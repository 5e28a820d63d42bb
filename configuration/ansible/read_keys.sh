# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh

# Prints the authorized_keys file $1.
set -e
if [ -e "$1" ]; then
    printf '\nclusterm-authorized-keys present %s\n' "$1"
    head -c 1048577 <"$1"
else
    printf '\nclusterm-authorized-keys absent %s\n' "$1"
fi
