#!/bin/sh
# Set up what is missing: a virtual environment with the pinned packages, Graphviz, and on Linux bubblewrap, which
# confines submissions. If nothing is missing, end at once. An interrupted setup is continued by the same command.
#   PYTHON=/path/to/python   the interpreter of a new environment
#   PASSLAB_TORCH=cuda|cpu   torch with or without CUDA; else an NVIDIA GPU decides
#   PASSLAB_TORCH_INDEX=URL  where torch without CUDA comes from

cd "$(dirname "$0")/.." || exit 1
stamp=.venv/passlab-setup
log=.venv/setup.log
index=${PASSLAB_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
torch=$(sed -n 's/^ *"torch==\([^"]*\)".*/\1/p' pyproject.toml)
# What is downloaded, what .venv then takes, and what the disk must have: pip also keeps what it downloads, and unpacks
# a copy. tests/system/test_resolve.py compares the downloads with PyPI.
cuda_download="3.6 GB" cuda_venv=8 cuda_gib=12
cpu_download="1.2 GB" cpu_venv=5 cpu_gib=7
mac_download="0.7 GB" mac_venv=3 mac_gib=4

say() { printf '%s\n' "$*" >&2; }
fail() { say "Setup stopped: $*"; exit 1; }

# The version of an interpreter; fails if it does not run.
version() { "$1" -ESc 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null | grep -E '^[0-9]+(\.[0-9]+){2}$'; }
minor() { version "$1" | sed 's/\.[0-9]*$//'; }
supported() { case $1 in 3.11.* | 3.12.* | 3.13.*) ;; *) return 1 ;; esac; }
state() { pwd -P; minor .venv/bin/python; cat pyproject.toml; [ ! -f "$(wheel)" ] || wheel; }
# What learners of a class get: the library as a wheel, beside this file.
wheel() { for path in lib/*.whl; do printf "%s\n" "$path"; done | tail -n 1; }

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

# The Python that the caller named is used, or the reason why not is said: never another one.
named_python() {
    command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON names $PYTHON, and there is no such program."
    named=$(version "$PYTHON") || fail "PYTHON names $PYTHON, which does not run: $("$PYTHON" -c '' 2>&1 | tail -n 1)"
    supported "$named" || fail "PYTHON names $PYTHON, which is Python $named. Python 3.11, 3.12 or 3.13 is needed."
    present=$(version .venv/bin/python) || return 0
    [ "$present" = "$named" ] ||
        fail ".venv holds Python $present, and PYTHON names $named. Remove .venv (rm -r .venv) and run this again."
}

find_python() {
    [ -z "$PYTHON" ] || { python=$PYTHON; return 0; }
    others=
    for python in python3 python3.13 python3.12 python3.11; do
        command -v "$python" >/dev/null 2>&1 || continue
        present=$(version "$python") || present="broken"
        supported "$present" && return 0
        others="$others $python is $present;"
    done
    fail "Python 3.11, 3.12 or 3.13 is needed (${others:- no python3 on the PATH;} see https://www.python.org/downloads or your system's packages)." \
        "If you have one elsewhere, run: make PYTHON=/path/to/python3.13"
}

make_venv() {
    if [ -e .venv/bin ] || [ -L .venv/bin/python ]; then
        if ! present=$(version .venv/bin/python); then say "The Python of .venv does not run any more."
        elif ! supported "$present"; then say ".venv holds Python $present; 3.11, 3.12 or 3.13 is needed."
        elif [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" != "$(pwd -P)" ]; then
            [ ! -L .venv ] || [ ! -d "$(head -n 1 "$stamp")" ] ||
                fail ".venv is a link to what $(head -n 1 "$stamp") uses, and would be made anew. Remove the link (rm .venv) and run this again."
            say "The project was moved."
        else # the installer's name is the last that is written of a package
            for pip in .venv/lib/"python${present%.*}"/site-packages/pip-*.dist-info/INSTALLER; do
                [ ! -f "$pip" ] || return 0
            done
        fi
    fi
    find_python
    say "Creating a virtual environment with Python $(version "$python") in .venv"
    problem=$("$python" -m venv --clear .venv 2>&1) && return 0
    minor=$(minor "$python")
    case $problem in
    *ensurepip*)
        say "Installing python$minor-venv"
        system_package "python$minor-venv" && "$python" -m venv --clear .venv >/dev/null 2>&1 && return 0
        fail "$python cannot create virtual environments. Run: apt install python$minor-venv" ;;
    *"No space left"*) fail "the disk of $(pwd) is full. Free about $cpu_gib GiB." ;;
    *) fail "$python -m venv failed: $(printf '%s' "$problem" | tail -n 1)" ;;
    esac
}

nvidia() { nvidia-smi -L >/dev/null 2>&1 || [ -e /dev/nvidia0 ] || [ -e /proc/driver/nvidia/version ]; }

# The build of torch that pip gets, as it is configured, or with other options, if PyPI has not the same: 2.13.0+cpu.
build() {
    timeout 10 .venv/bin/python -m pip --timeout 4 --retries 0 index versions torch "$@" 2>/dev/null |
        sed -n "s/.* \($torch+[a-z0-9.]*\).*/\1/p"
}

# Decide which torch is installed: set `kind`, what it needs, and its index if that is not pip's own.
choose_torch() {
    kind="torch with CUDA" download=$cuda_download venv=$cuda_venv gib=$cuda_gib source=
    if [ "$(uname)" != Linux ]; then
        kind=torch download=$mac_download venv=$mac_venv gib=$mac_gib
    elif [ "$PASSLAB_TORCH" = cuda ] || { [ "$PASSLAB_TORCH" != cpu ] && nvidia; }; then :
    else
        own=$([ -n "$PASSLAB_TORCH_INDEX" ] || build)
        case $own in
        *+cpu)
            kind="the torch without CUDA that pip is configured for"
            download=$cpu_download venv=$cpu_venv gib=$cpu_gib ;;
        *+*) kind="the torch that pip is configured for, $own" ;;
        *)
            if [ -n "$(build --index-url "$index")" ]; then
                kind="torch without CUDA" download=$cpu_download venv=$cpu_venv gib=$cpu_gib source=$index
            else
                say "$index does not answer, so torch comes with CUDA: $cuda_download to download instead of $cpu_download."
            fi ;;
        esac
    fi
}

# A package that was being written when a setup was interrupted lacks its installer's name: pip is to write it again.
forget_halves() {
    for info in .venv/lib/python*/site-packages/*.dist-info; do
        [ ! -d "$info" ] || [ -f "$info/INSTALLER" ] || rm -r "$info"
    done
}

has_torch() {
    for info in .venv/lib/python*/site-packages/"torch-$torch"$1.dist-info; do [ ! -d "$info" ] || return 0; done
    return 1
}

# Without a terminal, say in one line each what takes long. On a terminal, pip shows its progress bars.
phases() {
    while read -r word rest; do
        case "$word $rest" in
        Downloading*[0-9][0-9].[0-9]" MB)") say "  downloading $rest" ;;
        Installing*) say "  unpacking" ;;
        esac
    done
}

run_pip() { .venv/bin/python -m pip --disable-pip-version-check install --no-compile --retries 2 "$@" 2>"$log"; }

install() {
    if [ -t 2 ]; then run_pip "$@" >&2 && return 0
    else status=$({ { run_pip --progress-bar off "$@"; echo $? >&3; } | phases; } 3>&1) && [ "$status" = 0 ] && return 0
    fi
    if grep -qi 'no space left' "$log"; then
        fail "the disk is full. Free about $gib GiB (also in ${TMPDIR:-/tmp}, where pip unpacks) and run this again."
    elif grep -q CERTIFICATE_VERIFY_FAILED "$log"; then
        fail "the certificate of the package index is not trusted. If your network inspects TLS, name its certificate in PIP_CERT" \
            "and run this again."
    elif grep -qiE 'name resolution|getaddrinfo|unreachable|connection (refused|reset|broken|aborted)|NewConnectionError|timed out|ProxyError|SSLError' "$log"; then
        fail "the package index cannot be reached. Check the network (or the proxy in HTTPS_PROXY) and run this again."
    elif grep -qiE 'no matching distribution|could not find a version' "$log"; then
        fail "a pinned package has no build for this Python or platform: $(grep -iE 'no matching distribution|could not find a version' "$log" | tail -n 1)"
    else
        fail "pip could not install the packages:$(grep -iE '^ *error: ' "$log" | grep -v 'subprocess-exited' | head -n 1). The full log is in $log."
    fi
}

install_packages() {
    gib=$cpu_gib
    if ! has_torch '*'; then
        choose_torch
        free_kib=$(df -Pk . 2>/dev/null | awk 'NR == 2 { print $4 }')
        [ "${free_kib:-99999999}" -ge $((gib * 1024 * 1024)) ] ||
            fail "the packages and what pip keeps of them need about $gib GiB, but the disk of $(pwd) has $((free_kib / 1048576)) GiB free. Free some space."
        say "Installing the packages pinned in pyproject.toml, with $kind: $download to download (less what pip has" \
            "kept of it), $venv GiB in .venv. This takes a few minutes."
        # torch first, by its pin alone: its index is not asked for other packages.
        install "torch==$torch" ${source:+--extra-index-url "$source"}
    else
        say "Installing the packages pinned in pyproject.toml"
    fi
    if [ -f "$(wheel)" ]; then install "$(wheel)"
    else install --editable '.[grade,book,hub,test,gpu]'
    fi
    say "Compiling the packages"
    .venv/bin/python -m compileall -qq -j 0 .venv/lib >/dev/null 2>&1 # some hold files for Python 2
}

case $PASSLAB_TORCH in
"" | cpu) ;;
cuda) ! has_torch '+cpu' || fail ".venv holds torch without CUDA. Remove .venv (rm -r .venv) and run this again." ;;
*) fail "PASSLAB_TORCH is $PASSLAB_TORCH; it can be cpu or cuda." ;;
esac
[ -z "$PYTHON" ] || named_python

if ! state | cmp -s - "$stamp"; then
    trap 'say "Setup was interrupted. The same command continues it."; exit 130' INT TERM
    make_venv
    forget_halves
    install_packages
    state >"$stamp" || fail "cannot write $stamp: is the disk full?"
    rm -rf .venv/home/.cache/pip # pip's, where the home folder cannot be written
    [ ! -d autograder ] || .venv/bin/python -m autograder.authoring.fresh >&2
    command -v c++ >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1 ||
        say "Note: there is no C++ compiler, which cells with torch.compile need (Debian: apt install g++; macOS: xcode-select --install)."
    .venv/bin/python -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        say "Note: Python's headers are missing, which cells with torch.compile need (Debian: apt install python3-dev)."
fi
if ! command -v dot >/dev/null 2>&1; then
    if [ ! -f .venv/no-graphviz ]; then
        say "Installing Graphviz"
        system_package graphviz || (: >.venv/no-graphviz) 2>/dev/null
    fi
    command -v dot >/dev/null 2>&1 ||
        say "Note: Graphviz (dot) is missing, so graphs are shown as text. Install it: apt install graphviz, or brew install graphviz."
fi

# Only instructors need bubblewrap, so this is mentioned once; after that, `passlab doctor` reports it.
if [ -d autograder ] && [ "$(uname)" = Linux ] && ! command -v bwrap >/dev/null 2>&1 && [ ! -f .venv/no-bubblewrap ]; then
    say "Installing bubblewrap"
    system_package bubblewrap || (: >.venv/no-bubblewrap) 2>/dev/null
    command -v bwrap >/dev/null 2>&1 ||
        say "Note: bubblewrap is missing, so other people's submissions cannot be graded safely here. To grade, install it: apt install bubblewrap."
fi
exit 0
