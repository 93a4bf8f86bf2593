package httpbound

import (
	"io"
	"net/http"
	"strings"
)

// Index returns a handler that lists the paths of a server, one on each line. The list helps a user who knows only the
// port, and does not name the program.
func Index(paths ...string) http.HandlerFunc {
	page := strings.Join(paths, "\n") + "\n"
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, page)
	}
}
