package source

import (
	"net/url"
	"strconv"
	"strings"
)

// Port returns the port of the server's URL, or 0 if the port is unknown. Port treats a URL without a scheme as an
// https URL.
func (a *APIServer) Port() uint16 {
	server := a.Name
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return 0
	}
	if u.Port() == "" {
		return map[string]uint16{"https": 443, "http": 80}[u.Scheme]
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}
