package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// publishScript is a shell script that tags a copy of this tree and publishes two releases in the directory $1. The
// first release announces the key that signs the second release.
const publishScript = `
mkdir -p "$1/tree" && cd ../../..
git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 cp --parents -t "$1/tree"
cd "$1/tree"
sed -i 's/^## \[Unreleased\]$/&\n\n## [1.1.0]\n\nThe second release./' CHANGELOG.md
git init --quiet && git add --all
tag() { git -c user.name=test -c user.email=test@edgeway.test commit --quiet --allow-empty -m "$1" && git tag "v$1"; }
export GNUPGHOME=$1/keys PROJECT_URL=https://packages.edgeway.test/edgeway PROJECT_CONTACT=maintainers@edgeway.test
mkdir -m 700 "$GNUPGHOME"
for key in old new; do gpg --batch --quiet --passphrase '' --quick-generate-key $key@edgeway.test ed25519 sign 1d; done
tag 1.0.0
scripts/release 1.0.0 --output "$1/repository" --key old@edgeway.test --next-key new@edgeway.test amd64
cp "$1/repository/edgeway.asc" "$1/edgeway.asc"
tag 1.1.0
scripts/release 1.1.0 --output "$1/repository" --key new@edgeway.test amd64
gpgconf --kill all`

func TestNightlyRelease(t *testing.T) {
	vmtest.Need(t)
	inside := vmtest.BuildTest(t, "edgeway/test/vm/host/inside")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", publishScript, "publish", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("releases: %v\n%s", err, out)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "repository"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Log(e.Name())
	}
	job := vm.Job{Files: map[string]string{
		"inside": inside, "repository": filepath.Join(dir, "repository"), "edgeway.asc": filepath.Join(dir, "edgeway.asc"),
	}}
	t.Run("trixie", func(t *testing.T) { runInside(t, vm.Trixie, "TestRelease", job) })
}
