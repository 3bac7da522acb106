#!/bin/sh
# Set up what is missing: a virtual environment with the pinned packages, Graphviz, and on Linux bubblewrap, which
# confines submissions. If nothing is missing, end at once. PYTHON=/path/to/python selects the interpreter.

cd "$(dirname "$0")/.." || exit 1
stamp=.venv/passlab-setup
log=.venv/setup.log
need_gib=6

say() { printf '%s\n' "$*" >&2; }
fail() { say "Setup stopped: $*"; exit 1; }
state() { pwd -P; cat pyproject.toml; }

# Run a command as root, directly or by sudo without a password. Fails if neither is possible.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

system_package() {
    if command -v apt-get >/dev/null 2>&1; then
        as_root env DEBIAN_FRONTEND=noninteractive sh -c '
            apt-get install -y --no-install-recommends "$1" || { apt-get update && apt-get install -y --no-install-recommends "$1"; }
        ' sh "$1" >/dev/null 2>&1
    elif command -v brew >/dev/null 2>&1; then brew install "$1" >/dev/null 2>&1
    else return 1
    fi
}

find_python() {
    found=
    for python in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14; do
        command -v "$python" >/dev/null 2>&1 || continue
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return 0
        found="$found $python is $("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null);"
    done
    fail "Python 3.11 or newer is needed (${found:- no python3 on the PATH;} see https://www.python.org/downloads or your system's packages)." \
        "If you have one elsewhere, run: make PYTHON=/path/to/python3.11"
}

make_venv() {
    if [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1 \
        && { [ ! -f "$stamp" ] || [ "$(head -n 1 "$stamp")" = "$(pwd -P)" ]; }; then
        return 0
    fi
    free_kib=$(df -Pk . 2>/dev/null | awk 'NR == 2 { print $4 }')
    if [ "${free_kib:-99999999}" -lt $((need_gib * 1024 * 1024)) ]; then
        fail "the packages need about $need_gib GiB, but the disk of $(pwd) has $((free_kib / 1048576)) GiB free. Free some space."
    fi
    find_python
    say "Creating a virtual environment with $("$python" --version 2>&1) in .venv"
    said=$("$python" -m venv --clear .venv 2>&1) && return 0
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    case $said in
    *ensurepip*)
        say "Installing python$version-venv"
        system_package "python$version-venv" && "$python" -m venv --clear .venv >/dev/null 2>&1 && return 0
        fail "$python cannot create virtual environments. Run: apt install python$version-venv" ;;
    *"No space left"*) fail "the disk of $(pwd) is full. Free about $need_gib GiB." ;;
    *) fail "$python -m venv failed: $(printf '%s' "$said" | tail -n 1)" ;;
    esac
}

install() {
    quiet=
    [ -t 2 ] || quiet=-q # on a terminal pip shows its progress bars
    .venv/bin/python -m pip --disable-pip-version-check install $quiet --retries 2 "$@" >&2 2>"$log" && return 0
    if grep -qi 'no space left' "$log"; then
        fail "the disk is full. Free about $need_gib GiB (also in ${TMPDIR:-/tmp}, where pip unpacks) and run this again."
    elif grep -qiE 'name resolution|getaddrinfo|unreachable|connection (refused|reset|broken|aborted)|NewConnectionError|timed out|ProxyError|SSLError' "$log"; then
        fail "the package index cannot be reached. Check the network (or the proxy in HTTPS_PROXY) and run this again."
    elif grep -qiE 'no matching distribution|could not find a version' "$log"; then
        fail "a pinned package has no build for this Python or platform: $(grep -iE 'no matching distribution|could not find a version' "$log" | tail -n 1)"
    else
        fail "pip could not install the packages:$(grep -iE '^ *error: ' "$log" | grep -v 'subprocess-exited' | head -n 1). The full log is in $log."
    fi
}

if ! state | cmp -s - "$stamp"; then
    make_venv
    say "Installing the packages pinned in pyproject.toml (a few minutes the first time)"
    # torch first, by its pin alone: if pip is configured for a build without CUDA, that build is kept.
    install "$(sed -n 's/^ *"\(torch==[^"]*\)".*/\1/p' pyproject.toml)"
    install --editable '.[grade,book,hub,test,gpu]'
    state >"$stamp" || fail "cannot write $stamp: is the disk full?"
    command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 ||
        say "Note: there is no C++ compiler, which cells with torch.compile need (Debian: apt install g++; macOS: xcode-select --install)."
fi

if ! command -v dot >/dev/null 2>&1; then
    if [ ! -f .venv/no-graphviz ]; then
        say "Installing Graphviz"
        system_package graphviz || : >.venv/no-graphviz
    fi
    command -v dot >/dev/null 2>&1 ||
        say "Note: Graphviz (dot) is missing, so graphs are shown as text. Install it: apt install graphviz, or brew install graphviz."
fi

# Only instructors need bubblewrap, so this is mentioned once; after that, `passlab doctor` reports it.
if [ "$(uname)" = Linux ] && ! command -v bwrap >/dev/null 2>&1 && [ ! -f .venv/no-bubblewrap ]; then
    say "Installing bubblewrap"
    system_package bubblewrap || : >.venv/no-bubblewrap
    command -v bwrap >/dev/null 2>&1 ||
        say "Note: bubblewrap is missing, so other people's submissions cannot be graded safely here. To grade, install it: apt install bubblewrap."
fi
exit 0
