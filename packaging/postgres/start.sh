#!/bin/sh
# Starts a program in a container of the Dockerfile's image: start.sh patroni|etcd|haproxy MACHINE
#
# The program is set up as its systemd unit would be, with the certificates of the machine from /certificates, and runs
# as its user.
set -eu
program=$1 machine=$2

# keys FOLDER USER: has ca.crt, node.crt and node.key in a folder, for a user.
keys() {
  mkdir -p "$1"
  install -o "$2" -g "$2" -m 0644 /certificates/ca.crt "$1/ca.crt"
  install -o "$2" -g "$2" -m 0644 "/certificates/$machine.crt" "$1/node.crt"
  install -o "$2" -g "$2" -m 0600 "/certificates/$machine.key" "$1/node.key"
}

# settings FILE: sets the variables of a part of a unit file.
settings() {
  for setting in $(sed -n "s/%H/$machine/g; s/^Environment=//p" "$1"); do
    export "${setting?}"
  done
}

# as USER COMMAND...
as() {
  user=$1
  shift
  exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"
}

case $program in
patroni)
  keys /etc/patroni postgres
  settings /etc/j17/patroni.conf
  as postgres patroni /etc/patroni/config.yml
  ;;
etcd)
  keys /etc/etcd etcd
  settings /etc/j17/etcd.conf
  as etcd etcd --data-dir /var/lib/etcd/default
  ;;
haproxy)
  install -m 0644 /certificates/ca.crt /etc/haproxy/ca.crt
  install -m 0600 /certificates/example.com.pem /etc/haproxy/example.com.pem
  exec haproxy -W -db -f /etc/haproxy/haproxy.cfg
  ;;
esac
