package httpserve

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"sigs.k8s.io/yaml"

	"edgeway/daemon/files"
)

// ValidateWebConfig returns an error if the web configuration file at path is invalid. An empty path is valid.
func ValidateWebConfig(path string) error {
	if path == "" {
		return nil
	}
	if _, err := files.Read(path, files.SmallLimit); err != nil { // opening a device or a pipe would block the start
		return err
	}
	if err := web.Validate(path); err != nil {
		return errors.New(strings.Join(strings.Fields(err.Error()), " ")) // yaml's errors span several lines
	}
	return nil
}

// HasUsers reports whether the web configuration file at path requires a password from every client. HasUsers returns
// false if the file is unreadable.
func HasUsers(path string) bool {
	if path == "" {
		return false
	}
	var file struct {
		Users map[string]string `json:"basic_auth_users"`
	}
	text, err := files.Read(path, files.SmallLimit)
	return err == nil && yaml.Unmarshal(text, &file) == nil && len(file.Users) > 0
}

// serve handles requests until the caller closes the server. exporter-toolkit reads the web configuration file for each
// connection, so operators can replace certificates and passwords at any time.
func serve(l net.Listener, server *http.Server, path string, log *slog.Logger) error {
	if path == "" {
		return server.Serve(l)
	}
	return web.Serve(l, server, &web.FlagConfig{WebConfigFile: &path}, log)
}
