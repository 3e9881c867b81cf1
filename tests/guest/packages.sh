#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian's packages, unpacked and not installed. Sourced by bash. Everything lies in a cache,
# ${POLLGAP_GUEST_CACHE} or ~/.cache/pollgap-guest, which the sourcing script has for itself.
cache=${POLLGAP_GUEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pollgap-guest}
readonly cache
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9

say() { echo "guest: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# apt as the machine has it set up, but with the sources and lists of one suite alone.
suite_apt() {
  local suite=$1 state=$cache/apt-$1
  shift
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  if [[ ! -s $state/sources.list ]]; then
    # shellcheck disable=SC2016  # the $(...) are apt's own placeholders
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(ORIGIN)' 'Created-By: Packages' |
      awk -v suite="$suite" '$3 == "Debian" && $2 == "bookworm" {
        print "deb " $1 " " suite " main"; exit }' >"$state/sources.list"
    [[ -s $state/sources.list ]] || fail "apt has no Debian bookworm source to take $suite from"
  fi
  apt-get -q -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$state/lists" -o Dir::Cache::pkgcache="" -o Dir::Cache::srcpkgcache="" "$@"
}

suite_cache() {
  local suite=$1 state=$cache/apt-$1
  shift
  apt-cache -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$state/lists" -o Dir::Cache::pkgcache="" -o Dir::Cache::srcpkgcache="" "$@"
}

# fetch SUITE DIRECTORY PACKAGE...: the packages' files, in DIRECTORY/root.
fetch() {
  local suite=$1 into=$2 package
  shift 2
  mkdir -p "$into"
  for package in "$@"; do
    (cd "$into" && suite_apt "$suite" download "$package" >&2) || fail "cannot download $package"
  done
  for package in "$into"/*.deb; do
    dpkg-deb --extract "$package" "$into/root"
    rm "$package"
  done
}
