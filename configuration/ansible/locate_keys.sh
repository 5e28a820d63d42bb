# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh

# Finds the authorized_keys file of this account, and prints it if it is in its home.
# $1: the command that makes root, or empty.
set -e
PATH=$PATH:/usr/sbin:/sbin
user=$(id -un)
uid=$(id -u)

# Only root may ask sshd where the file is.
pattern=
if [ "$uid" = 0 ] || [ -n "$1" ]; then
    [ "$uid" = 0 ] && set -- ''
    pattern=$($1 sshd -T -C "user=$user,host=localhost,addr=127.0.0.1" 2>/dev/null |
        sed -n 's/^authorizedkeysfile //p') || pattern=
fi
pattern=${pattern%% *}
[ "$pattern" != none ] || { echo 'its sshd reads no authorized_keys file' >&2; exit 1; }
rest=${pattern:-.ssh/authorized_keys}

# The tokens of sshd.
file=
while :; do
    case $rest in
    *%*) ;;
    *) break ;;
    esac
    file=$file${rest%%\%*}
    rest=${rest#*%}
    case $rest in
    h*) file=$file$HOME ;;
    u*) file=$file$user ;;
    U*) file=$file$uid ;;
    %*) file=$file% ;;
    *) echo "its sshd reads an authorized_keys file of an unknown form: $pattern" >&2; exit 1 ;;
    esac
    rest=${rest#?}
done
file=$file$rest

case $file in
/*) ;;
*) file=$HOME/$file ;;
esac

case $file in
"$HOME"/*) ;;
*) printf '\nclusterm-authorized-keys central %s\n' "$file"; exit 0 ;;
esac

if [ -e "$file" ]; then
    printf '\nclusterm-authorized-keys present %s\n' "$file"
    head -c 1048577 <"$file"
else
    printf '\nclusterm-authorized-keys absent %s\n' "$file"
fi
