package inside

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"time"
)

const rootsKubeconfig = "/root/edgeway.kubeconfig"

// replaceToken replaces root's kubeconfig. The status contains the token's expiry time, which identifies the token in
// use.
func replaceToken(h *host, expired time.Time) {
	h.Helper()
	raw, err := os.ReadFile(rootsKubeconfig)
	if err != nil {
		h.Fatal(err)
	}
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expired.Unix()))
	lines := strings.Split(string(raw), "\n")
	for i, line := range lines {
		if before, _, ok := strings.Cut(line, "token: "); ok {
			lines[i] = before + "token: header." + claims + ".signature"
		}
	}
	if err := os.WriteFile(rootsKubeconfig+".new", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		h.Fatal(err)
	}
	if err := os.Rename(rootsKubeconfig+".new", rootsKubeconfig); err != nil {
		h.Fatal(err)
	}
}

func (h *host) verifyToken(expired time.Time) {
	h.Helper()
	h.eventually("The token expired at "+expired.UTC().Format(time.RFC3339), "edgeway", "status")
}

func day(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }

// testLoadCredential tests the statements about LoadCredential= in cluster.md. During a restart, systemd copies the
// kubeconfig. systemd 260 and later can also copy the kubeconfig during a reload.
func testLoadCredential(h *host) {
	replaceToken(h, day(2001))
	h.run("systemctl", "restart", "edgeway")
	h.verifyToken(day(2001))

	var version int
	if _, err := fmt.Sscanf(h.run("systemctl", "--version"), "systemd %d", &version); err != nil {
		h.Fatal(err)
	}
	if version < 260 {
		return
	}
	h.write("/etc/systemd/system/edgeway.service.d/refresh.conf", "[Service]\nRefreshOnReload=credentials\n")
	h.run("systemctl", "daemon-reload")
	replaceToken(h, day(2002))
	h.run("systemctl", "reload", "edgeway")
	h.verifyToken(day(2002))
}

// testKubeconfigUnits tests the units in cluster.md that make systemd copy the kubeconfig whenever the file changes,
// without a restart or a reload.
func testKubeconfigUnits(h *host) {
	const copied = "/run/edgeway-kubeconfig/kubeconfig"
	h.write("/etc/systemd/system/edgeway-kubeconfig.path",
		"[Path]\nPathChanged="+rootsKubeconfig+"\n[Install]\nWantedBy=multi-user.target\n")
	h.write("/etc/systemd/system/edgeway-kubeconfig.service", `[Unit]
Before=edgeway.service
[Service]
Type=oneshot
RuntimeDirectory=edgeway-kubeconfig
RuntimeDirectoryPreserve=yes
LoadCredential=kubeconfig:`+rootsKubeconfig+`
ExecStart=install -m 640 -g edgeway ${CREDENTIALS_DIRECTORY}/kubeconfig /run/edgeway-kubeconfig/new
ExecStart=mv /run/edgeway-kubeconfig/new `+copied+`
[Install]
WantedBy=edgeway.service
`)
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "enable", "--now", "edgeway-kubeconfig.path", "edgeway-kubeconfig.service")
	site, err := os.ReadFile(siteFile)
	if err != nil {
		h.Fatal(err)
	}
	h.write(siteFile, strings.Replace(string(site), "/run/credentials/edgeway.service/kubeconfig", copied, 1))
	h.run("systemctl", "reload", "edgeway")
	before := h.show("edgeway", "MainPID")
	replaceToken(h, day(2003))
	h.verifyToken(day(2003))
	if pid := h.show("edgeway", "MainPID"); pid != before {
		h.Errorf("process %s became %s", before, pid)
	}
	if out := h.run("edgeway", "status"); strings.Contains(out, "kubeconfig-insecure") {
		h.Errorf("the copy is complained about:\n%s", out)
	}
}
