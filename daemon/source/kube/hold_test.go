package kube

import (
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// A server that wants to be left alone is, with new credentials too; one that takes its place is asked at once.
func TestHoldBelongsToTheServer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *running) {
		use := func(url, token string) {
			t.Helper()
			config := &rest.Config{Host: url, BearerToken: token, Transport: innermost(r.client.route.Load().transport)}
			if err := r.client.use(config); err != nil {
				t.Fatal(err)
			}
		}
		requests := func(within time.Duration) int {
			before := len(api.seen())
			time.Sleep(within)
			return len(api.seen()) - before
		}
		time.Sleep(time.Minute)
		api.breakWith(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "300")
			status(w, http.StatusTooManyRequests, "", "later")
		})
		time.Sleep(time.Second)
		api.mend()
		if n := requests(10 * time.Second); n > 0 {
			t.Fatalf("%d requests to a server that wants none", n)
		}
		use("http://api", "new")
		if n := requests(10 * time.Second); n > 0 {
			t.Errorf("%d requests with new credentials to a server that wants none", n)
		}
		use("http://other", "new")
		if n := requests(20 * time.Second); n == 0 {
			t.Error("no request to the server that takes its place")
		}
		if st := r.Status(); st.Err != "" {
			t.Errorf("the other server is not in use: %s", st.Err)
		}
		use("http://api", "new")
		if n := requests(20 * time.Second); n > 0 {
			t.Errorf("%d requests to the first one, as soon as it is back", n)
		}
		if n := requests(5 * time.Minute); n == 0 {
			t.Error("no request to the first one after its time")
		}
	})
}
