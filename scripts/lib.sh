# shellcheck shell=bash disable=SC2034
# Shared by the scripts of this folder; sourced, not run.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# How a tool is built that no debugger will look at: it takes a sixth less time.
lean=(-gcflags=all=-dwarf=false "-ldflags=-s -w")

say() { printf '\n== %s\n' "$*"; }
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# need_root ARGUMENTS...: starts the script again as root, by sudo, with these arguments. What the environment says to Go, to the
# tests and to downloads is kept; sudo itself would set PATH anew.
need_root() {
	local kept
	[ "$(id -u)" != 0 ] || return 0
	command -v sudo >/dev/null || die "root is needed, for network namespaces and nftables, and there is no sudo here: run it as root"
	kept=$(compgen -e | grep -E '^(CI$|GO|CGO_|EDGEWAY_|CONFORMANCE_|SOURCE_DATE_EPOCH$|(https?|no)_proxy$|(HTTPS?|NO)_PROXY$)' | paste -sd, -) || :
	mkdir -p "$repo/bin" # root's files in it can be replaced, a folder of root's could not be written to
	exec sudo ${kept:+"--preserve-env=$kept"} env "PATH=$PATH" "$0" "$@"
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

# need_vm installs what builds and runs the virtual machines of test/vm.
need_vm() {
	[ "$(uname -m)" = x86_64 ] || die "the virtual machines are for x86_64"
	command -v apt-get >/dev/null || die "the virtual machines are built by apt-get: a Debian host is needed"
	install_commands qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap
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

# version prints what this tree is: a release, like 1.2.3, or one with the commits since, 1.2.3+5.gabcdef0; 0.0.0 came before all.
# Debian and rpm order them rightly.
version() {
	local described
	if [ -n "${EDGEWAY_VERSION:-}" ]; then
		echo "$EDGEWAY_VERSION"
	elif described=$(git -C "$repo" describe --tags --match 'v[0-9]*' --dirty=.dirty 2>/dev/null); then
		sed -E 's/^v//; s/-([0-9]+)-g/+\1.g/; s/^([^+]*)\.dirty$/\1+dirty/' <<<"$described"
	elif described=$(git -C "$repo" describe --always --dirty=.dirty 2>/dev/null); then
		echo "0.0.0+$(git -C "$repo" rev-list --count HEAD).g$described"
	else
		echo 0.0.0+unknown
	fi
}
