#!/usr/bin/env bash
# Makes an authority for Terrace alone, and certificates of it: for --cert, --key and --ca of terrace and terrace-node.
#   deploy/make_certs.sh node box1 box1.lan 192.168.1.20     # NAME, then further names and addresses it is reached by
#   deploy/make_certs.sh coordinator desk
# Each call makes NAME.crt and NAME.key below --out (default: certs), and ca.crt and ca.key where they are not there yet.
# Copy to a machine its own two files and ca.crt. ca.key signs: keep it elsewhere than on the machines.
set -euo pipefail
umask 077

usage() {
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  echo "usage: deploy/make_certs.sh [--out DIR] [--days N] node|coordinator NAME [NAME|ADDRESS ...]" >&2
  exit 2
}

out=certs days=397
while [[ ${1-} == --* ]]; do
  case $1 in
    --out) out=${2:?--out needs a folder} ;;
    --days) days=${2:?--days needs a number} ;;
    *) usage ;;
  esac
  shift 2
done
[[ $# -ge 2 ]] || usage
role=$1 name=$2
case $role in
  node) purpose=serverAuth ;;
  coordinator) purpose=clientAuth ;;
  *) usage ;;
esac
[[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && $name != ca ]] || { echo "make_certs.sh: $name is no name for a file" >&2; exit 2; }
shift

names=
for each in "$@"; do
  if [[ $each =~ ^[0-9.]+$ || $each == *:* ]]; then kind=IP; else kind=DNS; fi
  names+=${names:+,}$kind:$each
done

mkdir -p "$out"
new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

if [[ ! -e $out/ca.key ]]; then
  new_key "$out/ca.key"
  openssl req -x509 -new -key "$out/ca.key" -sha256 -days 3650 -subj "/CN=Terrace authority" -out "$out/ca.crt" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign
fi
new_key "$out/$name.key"
openssl req -new -key "$out/$name.key" -subj "/CN=$name" |
  openssl x509 -req -sha256 -days "$days" -CA "$out/ca.crt" -CAkey "$out/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
    -out "$out/$name.crt" -extfile <(
      echo "basicConstraints=critical,CA:FALSE"
      echo "keyUsage=critical,digitalSignature"
      echo "extendedKeyUsage=$purpose"
      echo "authorityKeyIdentifier=keyid"
      echo "subjectAltName=$names"
    ) 2>/dev/null
chmod 644 "$out/ca.crt" "$out/$name.crt"
echo "$out/$name.crt and .key: a $role, $names, $days days, of the authority $out/ca.crt"
