package daemon

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"edgeway/test/netlab"
)

// Only clients on this host can read profiles, unless web_config requires a password from other hosts.
func TestProfilesNeedPasswordFromOtherHosts(t *testing.T) {
	u := newUnit(t)
	client := u.lab.Host("client", netip.MustParseAddr("192.0.2.99"))
	node := u.lab.Node.Addr(client.Addrs[0])
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	web := u.write("web.yml", "")
	if err := os.Mkdir(filepath.Join(filepath.Dir(u.config), "conf.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	u.write("conf.d/metrics.toml", fmt.Sprintf(
		"[metrics]\naddress = \"0.0.0.0:10249\"\npprof = true\nweb_config = %q\n", web))
	u.start()
	u.await("READY=1")
	const profile, metrics = "/debug/pprof/goroutine", "/metrics"
	for _, c := range []struct {
		from           *netlab.Host
		to             netip.Addr
		path, password string
		users          bool
		want           string
	}{
		{client, node, metrics, "", false, "200"},
		{client, node, profile, "", false, "404"},
		{client, node, profile, "secret", false, "404"},
		{u.lab.Node, loopbackPort.Addr(), profile, "", false, "200"},
		{client, node, profile, "", true, "401"},
		{client, node, profile, "wrong", true, "401"},
		{client, node, profile, "secret", true, "200"},
		{u.lab.Node, loopbackPort.Addr(), profile, "secret", true, "200"},
	} {
		users := ""
		if c.users {
			users = fmt.Sprintf("basic_auth_users: {prometheus: %q}\n", hash)
		}
		u.write("web.yml", users) // the server reads the file for each request
		answer := get(t, c.from, netip.AddrPortFrom(c.to, 10249), c.path, c.password)
		if !strings.HasPrefix(answer, "HTTP/1.0 "+c.want+" ") {
			t.Errorf("%s asks %s with the password %q, users %t: %.60q, want %s", c.from.Name, c.path, c.password,
				c.users, answer, c.want)
		}
	}
}

func get(t *testing.T, from *netlab.Host, at netip.AddrPort, path, password string) (answer string) {
	t.Helper()
	request := "GET " + path + " HTTP/1.0\r\n"
	if password != "" {
		request += "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("prometheus:"+password)) + "\r\n"
	}
	err := from.Do(func() error {
		conn, err := net.DialTimeout("tcp", at.String(), 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		var text []byte
		if _, err = io.WriteString(conn, request+"\r\n"); err == nil {
			text, err = io.ReadAll(conn)
		}
		answer = string(text)
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return answer
}
