package inside

import (
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// signedManifests tests that a host downloads manifests with a valid signature, and that a file with an invalid
// signature or an invalid manifest changes nothing.
func signedManifests(h *host) {
	const unit, www = "edgeway-download", "/var/tmp/www"
	const current = "/etc/edgeway/manifests/services.yaml"
	h.Setenv("GNUPGHOME", h.TempDir())
	h.Cleanup(func() { h.try("gpgconf", "--kill", "all") })
	h.write(www+"/index.html", "")
	published := time.Now().Add(-time.Hour)
	publish := func(file string) {
		h.Helper()
		h.run("cp", file, www+"/services.yaml.gpg")
		published = published.Add(time.Minute)
		if err := os.Chtimes(www+"/services.yaml.gpg", published, published); err != nil {
			h.Fatal(err)
		}
	}
	signed := func(user, text, file string) string {
		h.Helper()
		h.write("/var/tmp/manifests", text)
		h.run("gpg", "--batch", "--yes", "--local-user", user, "--output", file, "--sign", "/var/tmp/manifests")
		return file
	}
	h.write(jobDir+"/services.yaml", oneEndpoint("signed", "10.96.0.60", "", "10.244.1.11"))
	h.followRecipe("manifests.md", "To sign the manifests")
	h.run("cp", jobDir+"/manifests-key.gpg", "/etc/edgeway/")
	publish(jobDir + "/services.yaml.gpg")
	h.stopAtEnd(unit + ".timer")
	h.Cleanup(func() { h.remove(current) })

	server := "http://" + serveFiles(h, www)
	h.followRecipe("manifests.md", "To download the manifests", "https://files.example.org", server)
	h.becomesServed("10.96.0.60:80") // the timer runs the script
	h.run("systemctl", "stop", unit+".timer")
	first := h.inode(current)
	unchanged := func(why string) {
		h.Helper()
		if h.inode(current) != first {
			h.Errorf("the manifests were replaced, though %s", why)
		}
		h.verifyFromHost("10.96.0.60:80")
	}
	h.starts(unit, true)
	unchanged("the file on the server has not changed")

	next := oneEndpoint("signed", "10.96.0.61", "", "10.244.1.11")
	h.run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "other@example.org", "ed25519", "sign", "never")
	publish(signed("other@example.org", next, "/var/tmp/other.gpg"))
	h.starts(unit, false)
	unchanged("another key signed them")
	good := signed("services@example.org", next, "/var/tmp/good.gpg")
	damaged := []byte(h.text(good))
	damaged[len(damaged)/2] ^= 1
	h.write("/var/tmp/damaged.gpg", string(damaged))
	publish("/var/tmp/damaged.gpg")
	h.starts(unit, false)
	unchanged("they differ from the signed file")
	mistake := strings.Replace(next, "targetPort", "tragetPort", 1)
	publish(signed("services@example.org", mistake, "/var/tmp/mistake.gpg"))
	h.starts(unit, false)
	unchanged("they have a mistake")
	h.contains(h.run("journalctl", "-u", unit, "-o", "cat"), "tragetPort")

	publish(good)
	h.starts(unit, true)
	h.becomesServed("10.96.0.61:80")
	if h.inode(current) == first {
		h.Error("the manifests are still the first ones")
	}
}

func (h *host) inode(path string) string {
	h.Helper()
	return h.run("stat", "-c", "%i", path)
}

// serveFiles serves a directory over HTTP and returns the address of the server.
func serveFiles(h *host, dir string) string {
	h.Helper()
	l, err := (&net.ListenConfig{}).Listen(h.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: eventTimeout}
	h.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }()
	return l.Addr().String()
}
