package kube

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// waitForFault waits until the source reports a fault, and returns the elapsed time.
func waitForFault(t *testing.T, r *runningSource) time.Duration {
	t.Helper()
	for began := time.Now(); time.Since(began) < 90*time.Second; time.Sleep(time.Second) {
		if r.Status().Fault.Message != "" {
			return time.Since(began)
		}
	}
	t.Fatalf("nothing noticed in 90 s: %+v", r.Status())
	return 0
}

func TestQuietClusterIsNoFault(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
		for range 3600 {
			time.Sleep(time.Second)
			if st := r.Status(); st.Fault.Message != "" || time.Since(st.LastContact) > 66*time.Second {
				t.Fatalf("stale by %s: %+v", time.Since(st.LastContact), st)
			}
		}
		if n := api.count("services", "list", "stream"); n != 1 {
			t.Errorf("%d lists in an hour", n)
		}
		if n := api.count("services", "watch"); n > 80 {
			t.Errorf("%d watches in an hour", n)
		}
	})
}

func TestQuietClusterWithoutBookmarks(t *testing.T) {
	inBubble(t, func(api *fakeAPI) { api.noBookmarks = true }, func(t *testing.T, api *fakeAPI, r *runningSource) {
		for range 3600 {
			time.Sleep(time.Second)
			if st := r.Status(); st.Fault.Message != "" || time.Since(st.LastContact) > 5*time.Minute {
				t.Fatalf("stale by %s: %+v", time.Since(st.LastContact), st)
			}
		}
		if n := api.count("services", "list", "stream"); n < 10 || n > 16 {
			t.Errorf("%d lists in an hour", n)
		}
		lengths := make(map[string]int) // the number of watches by length in seconds
		for _, r := range api.seen() {
			if r.verb == "watch" && r.resource == "services" {
				lengths[r.get("timeoutSeconds")]++
			}
		}
		if lengths["10"] == 0 || lengths["11"] == 0 || lengths["12"] == 0 {
			t.Errorf("watches in doubt by their seconds: %v, want some of 10, 11 and 12: many hosts must not ask in step", lengths)
		}
	})
}

// An API server restart invalidates the resource versions of the watches on all hosts. Each host delays its next list
// by a random time.
func TestListsAfterServerRestartAreSpread(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
		lists := func() int { return api.count("services", "list", "stream") }
		shortest, longest := time.Hour, time.Duration(0)
		for range 60 {
			time.Sleep(quietTime + time.Minute)
			var at time.Time
			api.setHook(func(w http.ResponseWriter, r request) bool {
				if r.verb != "watch" || r.resource != "services" || !at.IsZero() {
					return false
				}
				at = time.Now()
				status(w, 410, "Expired", "too old resource version")
				return true
			})
			for before := lists(); lists() == before; {
				time.Sleep(10 * time.Millisecond)
			}
			took := time.Since(at)
			shortest, longest = min(shortest, took), max(longest, took)
		}
		if longest > listSpread+maxBackoff || longest-shortest < listSpread/2 {
			t.Errorf("a list follows %s to %s after the watch that began too late", shortest, longest)
		}
	})
}

// badAnswers maps bad responses from an API server to the faults that the source reports. No bad response counts as
// contact.
var badAnswers = map[string]struct {
	answer func(w http.ResponseWriter, r *http.Request)
	want   []string // the fault contains one of these texts
}{
	"no answer":    {hang, []string{"no answer in time"}},
	"headers only": {headers(hang), []string{"the connection went silent"}},
	"empty":        {headers(func(http.ResponseWriter, *http.Request) {}), []string{"the watch ended immediately", "the list ended early"}},
	"cut off": {headers(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"type":"ADDED","obj`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), []string{"closed before the response was complete"}},
	"garbage": {headers(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "\x00\xff{]garbage") }), []string{"unable to decode an event"}},
	"another kind": {headers(func(w http.ResponseWriter, r *http.Request) {
		emit(w, "ADDED", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","resourceVersion":"500"}}`)
		<-r.Context().Done()
	}), []string{
		"an event for services contained an object of another type",
		"an event for endpointslices contained an object of another type",
	}},
	"HTML": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>")
	}, []string{"text/html"}},
	"500":             {code(500), []string{"(500)"}},
	"503":             {code(503), []string{"(503)"}},
	"410":             {code(410), []string{"(410)"}},
	"closed at once":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, []string{"closed before the response was complete"}},
	"half of a list":  {headers(serveHalfList), []string{"the list ended early", "the watch ended immediately"}},
	"trickle of none": {headers(trickle), []string{"the connection went silent", "unable to decode"}},
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func headers(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		then(w, r)
	}
}

func code(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { status(w, n, map[int]string{410: "Expired"}[n], "no") }
}

// serveHalfList starts each streamed list but never completes it. serveHalfList also accepts watches, but sends no
// events.
func serveHalfList(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		emit(w, "ADDED", body("services", "a", clusterIP(1), 300))
	}
}

// trickle sends the start of an event and then stops.
func trickle(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, `{"type":`)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// If a response is neither a list nor an event, the source reports one fault within 90 s, and repeats the request at a
// moderate rate. A response that is neither a list nor an event does not count as contact. The source recovers when the
// API server works again.
func TestBadAnswersDoNotCountAsContact(t *testing.T) {
	for name, c := range badAnswers {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
				time.Sleep(2 * time.Minute)
				api.put("services", "a", clusterIP(1))
				// The test waits until every watch is older than minWatchTime, because a watch that ends soon after it
				// starts counts as a fault.
				for n := -1; n != len(api.seen()); time.Sleep(2 * minWatchTime) {
					n = len(api.seen())
				}
				synctest.Wait()
				began, contact := time.Now(), r.Status().LastContact
				api.breakWith(c.answer)
				took := waitForFault(t, r)
				found := false
				for _, want := range c.want {
					found = found || strings.Contains(r.Status().Fault.Message, want)
				}
				if !found {
					t.Errorf("the fault is %q, want %q", r.Status().Fault.Message, c.want)
				}
				fault, before := r.Status().Fault.Message, len(api.seen())
				const lasts = 10 * time.Minute
				for time.Since(began) < lasts {
					time.Sleep(time.Second)
					if st := r.Status(); time.Since(began) > took && st.Fault.Message == "" ||
						!st.LastContact.Equal(contact) {
						t.Fatalf("%s after the fault began: contact %s after it, status %+v", time.Since(began),
							st.LastContact.Sub(began), st)
					}
				}
				if n := len(api.seen()) - before; n > int(lasts.Seconds())*2 || n < 10 {
					t.Errorf("%d requests in %s", n, lasts)
				}
				if r.names() != "a" {
					t.Errorf("objects %q", r.names())
				}
				asked := len(api.seen()) - before
				api.repair()
				api.put("services", "b", clusterIP(2))
				repaired := time.Now()
				for r.names() != "a b" || r.Status().Fault.Message != "" {
					time.Sleep(time.Second)
					if time.Since(repaired) > maxListSilence+2*maxGap {
						t.Fatalf("not healed: %q, %+v", r.names(), r.Status())
					}
				}
				t.Logf("noticed after %s (%s), %d requests in %s, healed after %s", took, fault, asked, lasts,
					time.Since(repaired))
			})
		})
	}
}

// A decodable list of another kind must not cause Edgeway to delete served objects.
func TestListOfOtherKindDeletesNothing(t *testing.T) {
	for name, list := range map[string]string{
		"no kind":    `{}`,
		"other kind": `{"apiVersion":"v1","kind":"NodeList","metadata":{"resourceVersion":"500"},"items":[]}`,
		"success":    `{"apiVersion":"v1","kind":"Status","status":"Success"}`,
		"no version": `{"apiVersion":"v1","kind":"ServiceList","items":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(api *fakeAPI) { api.noStream = true }, func(t *testing.T, api *fakeAPI, r *runningSource) {
				api.put("services", "a", clusterIP(1))
				synctest.Wait()
				contact := r.Status().LastContact
				api.breakWith(func(w http.ResponseWriter, r *http.Request) {
					switch q := r.URL.Query(); {
					case q.Get("sendInitialEvents") == "true":
						status(w, 422, "Invalid", "sendInitialEvents is forbidden for watch")
					case q.Get("watch") == "true":
						status(w, 410, "Expired", "too old resource version")
					default:
						w.Header().Set("Content-Type", "application/json")
						fmt.Fprint(w, list)
					}
				})
				time.Sleep(5 * time.Minute)
				if st := r.Status(); r.names() != "a" || !st.LastContact.Equal(contact) || st.Fault.Message == "" {
					t.Errorf("%q, %+v", r.names(), st)
				}
			})
		})
	}
}

// An overloaded API server requests a pause. All feeds wait before the next request, but for five minutes at most.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		code    int
		seconds int64
		atLeast time.Duration
	}{{429, 60, time.Minute}, {503, 60, time.Minute}, {429, 86400, 5 * time.Minute}, {503, 1 << 40, 5 * time.Minute}} {
		t.Run(fmt.Sprint(c.code, " ", c.seconds), func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
				time.Sleep(time.Minute)
				api.breakWith(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", strconv.FormatInt(c.seconds, 10))
					status(w, c.code, "", "later")
				})
				time.Sleep(time.Second)
				began, before := time.Now(), len(api.seen())
				time.Sleep(c.atLeast - 2*time.Second)
				if n := len(api.seen()) - before; n > 0 {
					t.Errorf("%d requests within %s", n, time.Since(began))
				}
				time.Sleep(c.atLeast/10 + 4*time.Second)
				if n := len(api.seen()) - before; n == 0 {
					t.Errorf("no request after %s", time.Since(began))
				}
				if r.Status().Fault.Message == "" {
					t.Error("it is not told")
				}
			})
		})
	}
}

// If the API server asks one feed to pause, the other feeds wait too, and report the pause as their fault.
func TestPauseAppliesToAllFeeds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
		r.client.Load().transport.pause.heed(&http.Response{
			StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"300"}},
		})
		api.breakWith(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
		api.repair()
		time.Sleep(time.Minute)
		if st := r.Status(); !strings.Contains(st.Fault.Message, "asked for a pause") {
			t.Errorf("the fault is %q", st.Fault.Message)
		}
		time.Sleep(5 * time.Minute)
		if st := r.Status(); st.Fault.Message != "" {
			t.Errorf("the fault is %q when it is over", st.Fault.Message)
		}
	})
}

// After connections break, the API server asks some feeds to pause. A feed that receives no response itself still
// reports the pause as its fault.
func TestPauseReplacesLostConnection(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
		var answers atomic.Int32
		api.breakWith(func(w http.ResponseWriter, req *http.Request) {
			if answers.Add(1) <= 8 {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Retry-After", "20")
			status(w, http.StatusTooManyRequests, "TooManyRequests", "not now")
		})
		time.Sleep(time.Minute)
		for _, f := range r.feeds {
			if _, failure := f.health.get(); !strings.Contains(failure.Message, "(429)") {
				t.Errorf("%s: the fault is %q", f, failure.Message)
			}
		}
	})
}

// A list over a slow link may take hours, as long as the source receives data. Other requests get no response until the
// list is complete.
func TestSlowListIsNotRestarted(t *testing.T) {
	for _, noStream := range []bool{false, true} {
		t.Run(fmt.Sprint("noStream=", noStream), func(t *testing.T) {
			inBubble(t, func(api *fakeAPI) {
				api.noStream = noStream
			}, func(t *testing.T, api *fakeAPI, r *runningSource) {
				api.put("services", "a", clusterIP(1))
				synctest.Wait()
				api.noStream = noStream
				slow := false
				api.breakWith(func(w http.ResponseWriter, req *http.Request) {
					verb := verbOf(req)
					switch {
					case !strings.HasSuffix(req.URL.Path, "/services"):
						<-req.Context().Done()
					case verb == "watch" && !slow:
						slow = true
						status(w, 410, "Expired", "too old resource version")
					case verb == "watch":
						api.serveWatch(w, req, request{resource: "services", query: req.URL.Query()}, 300)
					case verb == "stream" && noStream:
						status(w, 422, "Invalid", "sendInitialEvents is forbidden for watch")
					default:
						writeSlowly(w, verb)
					}
				})
				lists := api.count("services", "list", "stream")
				time.Sleep(3 * time.Hour)
				if got := r.names(); got != "a late" {
					t.Errorf("objects %q, %+v", got, r.Status())
				}
				want := 1
				if noStream {
					want = 2 // the source first tries to stream the list
				}
				if n := api.count("services", "list", "stream") - lists; n != want {
					t.Errorf("%d lists, want %d", n, want)
				}
			})
		})
	}
}

// writeSlowly writes a list over the course of two hours.
func writeSlowly(w http.ResponseWriter, verb string) {
	text := `{"apiVersion":"v1","kind":"ServiceList","metadata":{"resourceVersion":"300"},"items":[` +
		body("services", "a", clusterIP(1), 101) + "," + body("services", "late", clusterIP(2), 102) + "]}"
	if verb == "stream" {
		text = ""
		for i, name := range []string{"a", "late"} {
			text += fmt.Sprintf(`{"type":"ADDED","object":%s}`, body("services", name, clusterIP(i+1), 101+i))
		}
		text += `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Service","metadata":{"resourceVersion":"300","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	}
	w.Header().Set("Content-Type", "application/json")
	const pieces = 120
	for i := range pieces {
		fmt.Fprint(w, text[i*len(text)/pieces:(i+1)*len(text)/pieces])
		w.(http.Flusher).Flush()
		time.Sleep(time.Minute)
	}
}

// The source does not report a lost connection as a server error.
func TestLostConnectionIsNotReportedAsServerError(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
		time.Sleep(time.Minute)
		api.breakWith(badAnswers["cut off"].answer)
		waitForFault(t, r)
		if got := r.Status().Fault.Message; strings.Contains(got, "error on the server") ||
			strings.Contains(got, "500") {
			t.Errorf("the fault is %q", got)
		}
	})
}
