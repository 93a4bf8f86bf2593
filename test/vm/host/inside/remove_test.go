package inside

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"edgeway/test/netlab"
)

// inventory holds the files, rules and users that the package could leave behind.
type inventory struct {
	files        map[string]bool
	rules, users string
}

// ownUsers matches the lines in inventory.users for the package's user and groups.
var ownUsers = regexp.MustCompile(`(?m)^edgeway(-status)?:.*\n`)

// unrelatedDirs lists directories that change independently of Edgeway, such as the log directories, the job's
// directory, and the directories in which systemd, dpkg and apt keep their state.
var unrelatedDirs = []string{
	"/proc", "/sys", "/dev", "/vm", "/tmp", "/run/systemd", "/run/netns", "/run/udev", "/run/log",
	"/var/lib/dpkg", "/var/lib/apt", "/var/lib/systemd", "/var/cache", "/var/log", "/var/tmp", "/var/backups",
}

func takeInventory(t *testing.T) inventory {
	t.Helper()
	inv := inventory{files: map[string]bool{}}
	err := filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if slices.Contains(unrelatedDirs, path) {
			return fs.SkipDir
		}
		if err == nil {
			inv.files[path] = true
		}
		return nil // files may disappear during the walk
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"} {
		text, err := os.ReadFile(f)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		inv.users += f + ":\n" + string(text)
	}
	rules, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, rules)
	}
	inv.rules = netlab.WithoutEmptyTables(string(rules))
	return inv
}

func removeKeeps(h *host) {
	h.run("apt-get", "remove", "-q", "-y", "edgeway")
	if tables := h.run("nft", "list", "tables"); strings.Contains(tables, "edgeway") {
		h.Errorf("rules are left: %s", tables)
	}
	for _, kept := range []string{siteFile, "/etc/edgeway/edgeway.toml", "/var/lib/edgeway"} {
		if _, err := os.Stat(kept); err != nil {
			h.Error(err)
		}
	}
	if _, err := user.Lookup("edgeway"); err != nil {
		h.Error(err)
	}
	if out, _ := h.try("systemctl", "is-active", "edgeway"); out != "inactive" {
		h.Errorf("is-active says %q, want inactive", out)
	}
	if out := h.run("systemctl", "--failed", "--no-legend", "--plain"); out != "" {
		h.Errorf("failed units: %s", out)
	}
	h.install("1.1.0")
	h.run("systemctl", "enable", "--now", "edgeway", "edgeway-nodeport@30080.socket")
	h.verifyFromHost(clusterIP)
}

// purgePackage purges the package while the daemon is running. The package's user remains, because otherwise a
// new user could get the same ID and own the old user's files.
func purgePackage(h *host, before inventory) {
	h.run("systemctl", "is-active", "edgeway")
	_ = os.Remove("/etc/systemd/system/edgeway.service.d") // other scenarios created drop-ins in this directory
	h.run("apt-get", "purge", "-q", "-y", "edgeway")
	after := takeInventory(h.T)
	for _, path := range slices.Sorted(maps.Keys(after.files)) {
		if !before.files[path] {
			h.Errorf("%s is left behind", path)
		}
	}
	if after.rules != before.rules {
		h.Errorf("rules before:\n%s\nand after:\n%s", before.rules, after.rules)
	}
	if users := ownUsers.ReplaceAllString(after.users, ""); users != before.users || users == after.users {
		h.Errorf("users before:\n%s\nand after:\n%s", before.users, after.users)
	}
	if units := h.run("systemctl", "list-units", "--all", "--no-legend", "--plain",
		"edgeway*"); strings.TrimSpace(units) != "" {
		h.Errorf("systemd still knows %s", units)
	}
}
