package httpbound

import (
	"io"
	"net/http"
	"strings"
)

// Index returns a handler that responds with a server's paths, one per line, for a user who knows only the port. The
// response does not reveal the program's name.
func Index(paths ...string) http.HandlerFunc {
	page := strings.Join(paths, "\n") + "\n"
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, page)
	}
}
