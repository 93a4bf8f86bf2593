# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder; sourced, not run.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

need_root() {
	[ "$(id -u)" = 0 ] || die "must run as root: network namespaces and nftables need it (try: sudo $0)"
}

# install_commands COMMAND=DEBIAN_PACKAGE[=FEDORA_PACKAGE] ...: installs the packages of the commands that are missing.
install_commands() {
	local spec command deb rpm debs=() rpms=()
	for spec in "$@"; do
		IFS='=' read -r command deb rpm <<<"$spec"
		command -v "$command" >/dev/null 2>&1 && continue
		debs+=("$deb")
		rpms+=("${rpm:-$deb}")
	done
	[ ${#debs[@]} -gt 0 ] || return 0
	if command -v apt-get >/dev/null; then
		say "installing ${debs[*]}"
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${debs[@]}" >/dev/null
	elif command -v dnf >/dev/null; then
		say "installing ${rpms[*]}"
		dnf install -y -q "${rpms[@]}"
	else
		die "neither apt-get nor dnf found; please install: ${debs[*]}"
	fi
}

# find_go puts a Go toolchain on PATH. Go 1.21 or newer fetches the version that go.mod asks for by itself.
find_go() {
	[ -x /usr/local/go/bin/go ] && PATH=$PATH:/usr/local/go/bin
	install_commands go=golang-go=golang
	local version
	version=$(cd / && GOTOOLCHAIN=local go env GOVERSION) || die "go does not run"
	case $version in
	go1.[0-9] | go1.[0-9].* | go1.1[0-9]* | go1.20*)
		die "$version is too old: install Go 1.21 or newer (it fetches the version of go.mod by itself)" ;;
	esac
	export PATH
}
