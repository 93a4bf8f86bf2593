package webconfig

import (
	"crypto/sha256"
	"net/http"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// guard asks for a password before it hands on a request.
type guard struct {
	path string
	next http.Handler
	// known has for each user the digest of the hash and the password that were found to match: a scrape does not pay for bcrypt
	// again. Only those who know a password add to it.
	known sync.Map
	// comparing is held for a comparison, so that strangers cannot keep more than one processor busy.
	comparing sync.Mutex
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, err := read(g.path)
	if err != nil {
		http.Error(w, "the web configuration cannot be read", http.StatusInternalServerError)
		return
	}
	for name, value := range f.HTTP.Headers {
		w.Header().Set(name, value)
	}
	if len(f.Users) > 0 && !g.allows(f.Users, r) {
		w.Header().Set("WWW-Authenticate", "Basic")
		http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (g *guard) allows(users map[string]string, r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	if !ok {
		return false
	}
	hash, found := users[user]
	if !found {
		// Compared all the same, or the time would tell who is a user. The hash is of no password that anybody knows.
		hash = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
	}
	digest := sha256.Sum256([]byte(hash + "\x00" + password))
	if last, ok := g.known.Load(user); ok && found && last == digest {
		return true
	}
	g.comparing.Lock()
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password))
	g.comparing.Unlock()
	if err != nil || !found {
		return false
	}
	g.known.Store(user, digest)
	return true
}
