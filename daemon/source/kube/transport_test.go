package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// The transport cancels a request whose response is missing or stalls, over HTTP/1.1 and HTTP/2, even if the connection
// itself works.
func TestSilenceEndsRequest(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for path, want := range map[string]error{"/hang": errNoAnswer, "/silent": errSilent} {
			t.Run(fmt.Sprint(path, " http2=", http2), func(t *testing.T) {
				t.Parallel()
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if want := map[bool]int{false: 1, true: 2}[http2]; r.ProtoMajor != want {
						t.Errorf("HTTP/%d, want %d", r.ProtoMajor, want)
					}
					if r.URL.Path == "/silent" {
						fmt.Fprint(w, "some")
						w.(http.Flusher).Flush()
					}
					<-r.Context().Done()
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				client := server.Client()
				client.Transport = &transport{base: client.Transport}
				c := &call{maxSilence: 10 * time.Second}
				req, err := http.NewRequestWithContext(
					c.withContext(t.Context()), http.MethodGet, server.URL+path, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				resp, err := client.Do(req)
				if err == nil {
					defer resp.Body.Close()
					_, err = io.ReadAll(resp.Body)
				}
				if took := time.Since(began); !errors.Is(err, want) ||
					!errors.Is(c.incompleteError(), want) || took < c.maxSilence {
					t.Errorf("after %s: %v, %v; want %v", took, err, c.incompleteError(), want)
				}
			})
		}
	}
}
