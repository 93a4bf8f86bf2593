package httpbound

import (
	"io"
	"net/http"
	"strings"
)

// Index answers with the paths of a server, one on each line: enough for a person who knows the port only, and nothing
// that tells a stranger what it is.
func Index(paths ...string) http.HandlerFunc {
	page := strings.Join(paths, "\n") + "\n"
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, page)
	}
}
