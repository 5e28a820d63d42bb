# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh

# Replaces the authorized_keys file $1 by the input, unless it has changed.
# $2: the digest of the former content, or absent. $3: the digest of the new content.
# $4: the mode of a new file.
set -e
umask 077
file=$1 was=$2 new=$3 mode=$4

digest() { sha256sum | cut -d ' ' -f 1; }
fail() { echo "$1" >&2; exit 1; }

# A link keeps leading to the file.
[ ! -e "$file" ] || file=$(readlink -f "$file")

dir=${file%/*}
mkdir -p "$dir"
temp=$(mktemp "$file.XXXXXX")
trap 'rm -f "$temp"' EXIT

have=absent
if [ -e "$file" ]; then
    have=$(digest <"$file")
    cp -p "$file" "$temp"
    [ "$(stat -c %u:%g:%a "$file")" = "$(stat -c %u:%g:%a "$temp")" ] ||
        fail "$file belongs to another account, so that its owner would change"
else
    chmod "$mode" "$temp"
fi
[ "$have" = "$was" ] || fail "$file was changed meanwhile"

# A connection that breaks ends the input early.
cat >"$temp"
[ "$(digest <"$temp")" = "$new" ] || fail "the new $file did not arrive as a whole"

sync "$temp" 2>/dev/null || :
mv -f "$temp" "$file"
