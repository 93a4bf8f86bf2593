# shellcheck shell=bash disable=SC2034
# All scripts in this directory except controlplane source this file.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# These flags omit debugging information, which shortens the build of a tool by a sixth.
lean=(-gcflags=all=-dwarf=false "-ldflags=-s -w")

say() { printf '\n== %s\n' "$*"; }
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# need_root ARGUMENTS... uses sudo to restart the script as root with the same arguments. need_root preserves PATH,
# which sudo would otherwise replace, and the environment variables for Go, the tests and downloads.
need_root() {
	local kept
	[ "$(id -u)" != 0 ] || return 0
	command -v sudo >/dev/null || die "this script needs root for network namespaces and nftables, and sudo is not installed: run the script as root"
	kept=$(compgen -e | grep -E '^(CI$|GO|CGO_|EDGEWAY_|CONFORMANCE_|SOURCE_DATE_EPOCH$|(https?|no)_proxy$|(HTTPS?|NO)_PROXY$)' | paste -sd, -) || :
	mkdir -p "$repo/bin" # an ordinary user can replace root's files here, but could not write to root's directory
	exec sudo ${kept:+"--preserve-env=$kept"} env "PATH=$PATH" "$0" "$@"
}

# install_commands COMMAND=DEBIAN_PACKAGE[=FEDORA_PACKAGE] ... installs the packages that contain the missing commands.
# COMMAND can also be a file's path.
install_commands() {
	local spec command deb rpm debs=() rpms=()
	for spec in "$@"; do
		IFS='=' read -r command deb rpm <<<"$spec"
		if command -v "$command" >/dev/null 2>&1 || [ -f "$command" ]; then continue; fi
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

# need_vm installs the programs that build and run the virtual machines of test/vm.
need_vm() {
	[ "$(uname -m)" = x86_64 ] || die "the virtual machines need x86_64"
	command -v apt-get >/dev/null || die "building the virtual machines needs apt-get, and therefore a Debian host"
	install_commands qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap
}

# need_arm installs the programs that build and run the arm64 and armhf virtual machines of test/vm. The build of an ARM
# virtual machine runs ARM programs on this machine, so the kernel must start such programs with qemu-user.
need_arm() {
	local handler
	install_commands qemu-system-aarch64=qemu-system-arm qemu-aarch64-static=qemu-user-static arch-test=arch-test
	mountpoint -q /proc/sys/fs/binfmt_misc || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
	for handler in qemu-aarch64 qemu-arm; do
		[ -e "/proc/sys/fs/binfmt_misc/$handler" ] || cat "/usr/lib/binfmt.d/$handler.conf" >/proc/sys/fs/binfmt_misc/register
	done
}

# need_release installs the programs that scripts/release needs.
need_release() {
	install_commands gpg=gpg=gnupg2 gpg-agent=gpg-agent=gnupg2 apt-ftparchive=apt-utils createrepo_c=createrepo-c=createrepo_c
}

# find_go extends PATH with a Go toolchain that is new enough for go.mod.
find_go() {
	[ -x /usr/local/go/bin/go ] && PATH=$PATH:/usr/local/go/bin
	install_commands go=golang-go=golang /etc/ssl/certs/ca-certificates.crt=ca-certificates
	local least pinned have
	least=$(sed -n 's/^go /go/p' "$repo/go.mod")
	pinned=$(sed -n 's/^toolchain //p' "$repo/go.mod")
	have=$(cd / && GOTOOLCHAIN=local go env GOVERSION) || die "cannot run go"
	if ! at_least "$least" "$have"; then
		# Go 1.21 and newer can download other toolchains. Without GOTOOLCHAIN, Go would download two versions, because
		# not every go.mod in this tree names a toolchain.
		if at_least go1.21 "$have"; then export GOTOOLCHAIN=$pinned; else fetch_go "$pinned"; fi
	fi
	export PATH
}

# at_least VERSION OTHER reports whether OTHER is VERSION or newer.
at_least() { printf '%s\n' "$1" "$2" | sort -CV; }

# fetch_go VERSION downloads a Go toolchain as a module from Go's module proxy, as Go itself has done since 1.21.
# fetch_go then adds the toolchain to PATH. Go before 1.21 cannot verify the toolchain, so fetch_go compares the
# toolchain's digest with toolchain.sum, which contains lines from Go's checksum database.
fetch_go() {
	local module=golang.org/toolchain version dir got
	version=v0.0.1-$1.linux-$(go env GOHOSTARCH)
	say "fetching $1"
	got=$(cd / && GO111MODULE=on GOFLAGS=-modcacherw GOSUMDB=off go mod download -json "$module@$version") || die "$got"
	field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?$/\1/p" <<<"$got"; }
	grep -qxF "$module $version $(field Sum)" "$repo/scripts/toolchain.sum" ||
		die "$module $version has the digest $(field Sum), which scripts/toolchain.sum does not know"
	dir=$(field Dir)
	if [ ! -x "$dir/bin/go" ]; then
		# A module cannot contain executable files or a second go.mod.
		find "$dir/src" -name _go.mod -execdir cp {} go.mod ';'
		chmod -R +x "$dir/pkg/tool" "$dir/bin"
	fi
	unset GOROOT
	PATH=$dir/bin:$PATH
}

# version prints the version of this tree: a release such as 1.2.3, a release candidate such as 1.2.3~rc.1 (tag
# v1.2.3-rc.1), or a release followed by the number of later commits and the last commit's hash, such as
# 1.2.3+5.gabcdef0. Before the first tag, the release number is 0.0.0. dpkg and rpm sort releases, release candidates
# and later commits correctly.
version() {
	local described
	if [ -n "${EDGEWAY_VERSION:-}" ]; then
		echo "$EDGEWAY_VERSION"
	elif described=$(git -C "$repo" describe --tags --match 'v[0-9]*' --dirty=.dirty 2>/dev/null); then
		sed -E 's/^v//; s/-([0-9]+)-g/+\1.g/; s/-/~/; s/^([^+]*)\.dirty$/\1+dirty/' <<<"$described"
	elif described=$(git -C "$repo" describe --always --dirty=.dirty 2>/dev/null); then
		echo "0.0.0+$(git -C "$repo" rev-list --count HEAD).g$described"
	else
		echo 0.0.0+unknown
	fi
}
