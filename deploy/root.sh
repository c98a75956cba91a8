#!/bin/sh
# root.sh FOLDER PROGRAM LIBRARY…: makes a root file system for a program: its own file as
# /usr/bin/holdfast, the libraries that it and the given ones are linked to, certificates of public
# authorities, and a user. No shell and no other program.
set -eu
root=$1 program=$2
shift 2
mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/tmp"
chmod 1777 "$root/tmp"
cp "$program" "$root/usr/bin/holdfast"
for file in "$program" "$@"; do
    # "name => /path (address)" or "/path (address)".
    LC_ALL=C ldd "$file" | sed -n 's/.*=> *//; s/^[[:space:]]*//; s/ (0x.*//; /^\//p'
done | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp --dereference "$library" "$root$library"
done
cp --dereference /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'holdfast:x:10001:10001::/:/' >"$root/etc/passwd"
echo 'holdfast:x:10001:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
