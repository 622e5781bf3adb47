#!/bin/sh
# Makes a certificate authority and a certificate for each machine, for the connections between the machines:
#
#   ./certificates.sh FOLDER NAME...
#
# A NAME is a host name or an address by which the others reach the machine. The folder gets NAME.crt and NAME.key for
# each, and at the first call ca.crt and ca.key. ca.key goes to no machine: keep it where you keep other secrets, for
# the next certificates.
set -eu
umask 077
folder=$1
shift
mkdir -p "$folder"
cd "$folder"

# new_key FILE
new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

if [ ! -e ca.key ]; then
  new_key ca.key
  openssl req -x509 -new -key ca.key -days 3650 -subj "/CN=j17 on PostgreSQL" -out ca.crt
fi
for name; do
  case $name in
  *[!0-9.]*) kind=DNS ;;
  *) kind=IP ;;
  esac
  new_key "$name.key"
  cat >"$name.ext" <<END
subjectAltName = $kind:$name
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
END
  openssl req -new -key "$name.key" -subj "/CN=$name" |
    openssl x509 -req -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days 825 -extfile "$name.ext" \
      -out "$name.crt"
  rm "$name.ext"
done
