#!/bin/bash
# Brings a fresh Debian 12 or 13 to the point where tests, lab and demo can run. Every step looks first and does
# nothing when its work is done already. The only shell of the lab: it runs before there is a Node to run anything else.
# usage: setup.sh packages|modules|tiny-guest|test-packages|postgres|guest|soak|bench|cluster-proof
set -euo pipefail
cd "$(dirname "$0")/../.."
export DEBIAN_FRONTEND=noninteractive

case "$(uname -m)" in
  x86_64) node_arch=x64 ;;
  aarch64) node_arch=arm64 ;;
  *) echo "setup: no private Node for $(uname -m); x86_64 and aarch64 are supported" >&2; exit 1 ;;
esac
node_dir="$PWD/node_modules/node-linux-$node_arch"

say() { printf 'setup: %s\n' "$*"; }

# What the lab needs. libvirt-daemon alone: the -system package would start the machine's own libvirtd, which nothing here needs.
packages=(
  ca-certificates cpio e2fsprogs g++ iproute2 kmod libvirt-clients libvirt-daemon libvirt-daemon-driver-qemu libvirt0
  lz4 make openssl procps qemu-system-x86 qemu-utils seabios systemd util-linux xz-utils zstd
)
# What the tests need besides, and the Debian guest.
test_packages=(
  chromium-headless-shell default-jre-headless dosfstools faketime libarchive-tools libxml2-utils lzop mmdebstrap mtools openssh-client ovmf python3
  python3-aiohttp python3-certifi python3-dateutil python3-six python3-urllib3 strace swtpm swtpm-tools virtnbdbackup xfsprogs
)

# Runs a command and shows what it said only when it failed.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" </dev/null >"$log" 2>&1; then
    tail -n 50 "$log" >&2
    rm -f "$log"
    echo "setup: failed: $*" >&2
    return 1
  fi
  rm -f "$log"
}

need_root() {
  [ "$(id -u)" = 0 ] || { echo "setup: $1 needs root" >&2; exit 1; }
}

install_packages() {
  local missing=() name installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do grep -qx "installed $name" <<<"$installed" || missing+=("$name"); done
  [ ${#missing[@]} = 0 ] && return 0
  need_root "installing ${missing[*]}"
  say "apt packages missing: ${missing[*]}"
  quietly apt-get update -q
  quietly apt-get install -q -y --no-install-recommends "${missing[@]}"
}

step_packages() {
  local wanted=("${packages[@]}")
  command -v npm >/dev/null || wanted+=(npm)
  install_packages "${wanted[@]}"
  # Debian 13 split these drivers out of libvirt-daemon; Debian 12 has no packages of these names
  local modules='/usr/lib/*/libvirt' split=() driver
  for driver in network secret storage; do
    compgen -G "$modules/connection-driver/libvirt_driver_$driver.so" >/dev/null || split+=("libvirt-daemon-driver-$driver")
  done
  compgen -G "$modules/storage-backend/libvirt_storage_backend_logical.so" >/dev/null ||
    split+=(libvirt-daemon-driver-storage-logical)
  [ ${#split[@]} = 0 ] || install_packages "${split[@]}"
}

modules_key() { cat package.json package-lock.json | sha256sum | cut -d' ' -f1; }

step_modules() {
  local stamp=node_modules/.virtkeep-stamp key
  key=$(modules_key)
  if [ "$(cat "$stamp" 2>/dev/null || true)" != "$key" ]; then
    say "npm ci (no install scripts)"
    rm -f "$stamp"
    NODE_OPTIONS=--no-deprecation quietly npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  fi
  [ -x "$node_dir/bin/node" ] || { echo "setup: the private Node is missing: $node_dir" >&2; exit 1; }
  if ! private_node_loads zstd-napi; then
    say "building zstd-napi from source (some twenty seconds)"
    # Debian's node-gyp links every addon with Debian's libnode, which crashes the private Node at its end: an empty
    # library of that name is found first.
    mkdir -p .cache/no-libnode
    ar rc .cache/no-libnode/libnode.a
    # prebuilt binaries come from outside the registry; the private Node brings its own headers
    LDFLAGS="-L$PWD/.cache/no-libnode" PATH="$node_dir/bin:$PATH" NODE_OPTIONS=--no-deprecation \
      npm_config_build_from_source=true npm_config_nodedir="$node_dir" npm_config_jobs=max \
      quietly npm rebuild zstd-napi --loglevel=error
  fi
  local name
  for name in better-sqlite3 koffi zstd-napi; do
    private_node_loads "$name" || { echo "setup: the private Node cannot load $name" >&2; exit 1; }
  done
  echo "$key" > "$stamp"
}

private_node_loads() {
  "$node_dir/bin/node" -e '
    const name = process.argv[1];
    const loaded = require(name);
    if (name === "better-sqlite3") new loaded(":memory:").close();
    if (name === "zstd-napi" && loaded.decompress(loaded.compress(Buffer.from("x"))).length !== 1) process.exit(1);
  ' "$1" >/dev/null 2>&1
}

step_tiny_guest() {
  "$node_dir/bin/node" test/lab/tiny-guest.ts
}

step_guest() {
  step_tiny_guest
  "$node_dir/bin/node" test/lab/debian-guest.ts
  # ZFS for the tests, unpacked and not installed; where it cannot be had those tests say so and are skipped
  "$node_dir/bin/node" test/lab/zfs-fuse.ts
}

postgres_is_installed() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

# The package of PostgreSQL says which libraries its programs are linked with; that of LLVM is for queries of another size.
step_test_packages() {
  install_packages "${test_packages[@]}"
  if ! postgres_is_installed; then
    local package libraries
    apt-cache show postgresql >/dev/null 2>&1 || quietly apt-get update -q
    package=$(apt-cache depends postgresql | awk '$1 == "Depends:" { print $2 }')
    mapfile -t libraries < <(apt-cache depends "$package" | awk '$1 == "Depends:" && $2 ~ /^lib/ && $2 !~ /llvm/ { print $2 }')
    install_packages libpq5 "${libraries[@]}"
  fi
}

# The programs of PostgreSQL are unpacked by themselves: their package would make and start a server of the machine.
step_postgres() {
  postgres_is_installed || "$node_dir/bin/node" test/lab/postgres.ts
}

# What only the long tests need: a domain controller, a guest to join to it, libguestfs.
step_soak() {
  install_packages guestfs-tools virt-v2v
  # libguestfs makes its appliance in the likeness of the machine: one that runs on another's kernel may not have this
  mkdir -p /lib/modules
  "$node_dir/bin/node" test/lab/ad-dc.ts
}

case "${1:-}" in
  packages) step_packages ;;
  modules) step_modules ;;
  tiny-guest) step_tiny_guest ;;
  test-packages) step_test_packages ;;
  postgres) step_postgres ;;
  guest) step_guest ;;
  soak) step_soak ;;
  bench) install_packages virtnbdbackup ;;
  cluster-proof) install_packages nftables ;;
  *) echo "usage: setup.sh packages|modules|tiny-guest|test-packages|postgres|guest|soak|bench|cluster-proof" >&2; exit 2 ;;
esac
