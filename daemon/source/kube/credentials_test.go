package kube

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/fault"
)

func TestExpiryWarningTime(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		life, left time.Duration
		want       string
	}{
		{365 * day, 8 * day, ""},
		{365 * day, 6 * day, "expires at 2030-01-07T00:00:00Z"},
		{30 * day, 8 * day, ""},
		{30 * day, 6 * day, "expires at"},
		{10 * day, 2 * day, ""},
		{10 * day, 23 * time.Hour, "expires at"},
		{time.Hour, 12 * time.Minute, ""}, // the kubelet replaces the credential at this time
		{time.Hour, 5 * time.Minute, "expires at"},
		{time.Hour, -time.Second, "expired at 2029-12-31T23:59:59Z"},
		{0, 6 * day, "expires at"}, // the lifetime is unknown
		{0, 8 * day, ""},
	} {
		e := Expiry{Until: now.Add(c.left)}
		if c.life > 0 {
			e.From = e.Until.Add(-c.life)
		}
		got := joined(expiryFaults(map[string]Expiry{credentialToken: e}, "/k", now))
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("life of %s, %s left: %q, want %q", c.life, c.left, got, c.want)
		}
	}
}

func TestTokenExpiry(t *testing.T) {
	t.Parallel()
	jwt := func(claims string) string {
		return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
	}
	for token, want := range map[string]string{
		jwt(`{"exp":2000000000,"iat":1999996400,"sub":"a"}`): "2033-05-18T02:33:20Z 2033-05-18T03:33:20Z",
		jwt(`{"exp":2000000000.5}`):                          "- 2033-05-18T03:33:20Z",
		jwt(`{"exp":2000000000,"iat":2000000001}`):           "- 2033-05-18T03:33:20Z",
		jwt(`{"sub":"a"}`):                                   "",
		jwt(`{"exp":"tomorrow"}`):                            "",
		jwt(`{"exp":-1}`):                                    "",
		jwt(`{"exp":1e300}`):                                 "",
		jwt(`[]`):                                            "",
		"h.%%.s":                                             "",
		"opaque":                                             "",
		"":                                                   "",
	} {
		e, ok := tokenExpiry(token)
		got := ""
		if ok {
			got = "- "
			if !e.From.IsZero() {
				got = e.From.UTC().Format(time.RFC3339) + " "
			}
			got += e.Until.UTC().Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", token, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	const ip = "https://192.0.2.1"
	for name, c := range map[string]struct {
		server, cluster, user string
		mode, tokenMode       os.FileMode
		want                  string // a text that exactly one warning must contain, or "" for no warning
	}{
		"nothing wrong":         {server: ip, user: "token: a"},
		"plain HTTP":            {server: "http://192.0.2.1", want: "does not use TLS"},
		"HTTP on loopback":      {server: "http://127.0.0.1:8001"},
		"HTTP on localhost":     {server: "http://localhost:8001"},
		"HTTP on ::1":           {server: "http://[::1]:8001"},
		"no scheme":             {server: "192.0.2.1:8080", want: "does not use TLS"},
		"no verification":       {server: ip, cluster: ", insecure-skip-tls-verify: true", want: "insecure-skip-tls-verify is set"},
		"readable by all":       {server: ip, user: "token: a", mode: 0o644, want: "holds a secret and is readable by every user (mode 0644)"},
		"nothing to read":       {server: ip, user: "tokenFile: token", mode: 0o644},
		"readable token":        {server: ip, user: "tokenFile: token", tokenMode: 0o604, want: "/token holds a secret"},
		"writable by all":       {server: ip, mode: 0o602, want: "is writable by every user (mode 0602)"},
		"readable by own group": {server: ip, user: "token: a", mode: 0o640},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "kubeconfig")
			text := fmt.Sprintf(`{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: %q%s}}], users: [{name: u, user: {%s}}]}`, c.server, c.cluster, c.user)
			mustWrite(t, path, text)
			mustWrite(t, dir+"/token", "a")
			for file, mode := range map[string]os.FileMode{path: c.mode, dir + "/token": c.tokenMode} {
				if mode != 0 {
					if err := os.Chmod(file, mode); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, err := Warnings(path, false)
			if err != nil {
				t.Fatal(err)
			}
			if (c.want == "") != (len(got) == 0) || len(got) > 1 || !strings.Contains(joined(got), c.want) {
				t.Errorf("warnings %+v, want %q", got, c.want)
			}
		})
	}
}

func TestGroupReadableKubeconfigWarning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a file to another group")
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	mustWrite(t, path, strings.Replace(withUser("https://192.0.2.1", "token: a"), ", insecure-skip-tls-verify: true",
		"", 1))
	if err := os.Chown(path, -1, 54321); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o640: "holds a secret and is readable by the group 54321", 0o660: "is writable by the group 54321",
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		got, err := Warnings(path, false)
		if err != nil || (want == "") != (len(got) == 0) || !strings.Contains(joined(got), want) {
			t.Errorf("mode %o: %+v %v, want %q", mode, got, err, want)
		}
	}
}

func joined(faults []fault.Fault) string {
	var messages []string
	for _, f := range faults {
		messages = append(messages, f.Message)
	}
	return strings.Join(messages, "; ")
}
