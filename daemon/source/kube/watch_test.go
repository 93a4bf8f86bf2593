package kube

import (
	"net/http"
	"path"
	"strconv"
	"testing"
	"time"
)

// A watch lasts 5 to 10 minutes if the API server sends a bookmark each minute.
func TestWatchDuration(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
		time.Sleep(2 * time.Hour)
		if n := len(api.seen()); n > 3*(1+120/5) || n < 3*120/10 {
			t.Errorf("%d requests for three resources in two hours", n)
		}
	})
}

// The source reports no fault if a restarted API server sends no bookmarks, or if a proxy closes connections after a
// minute of silence. Without bookmarks, some long watches end early.
func TestWatchWithoutBookmarks(t *testing.T) {
	for name, prepare := range map[string]func(*fakeAPI){
		"restarted": func(api *fakeAPI) { api.noMinuteBookmarks = true },
		"proxy":     func(api *fakeAPI) { api.noMinuteBookmarks, api.idleLimit = true, time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, prepare, func(t *testing.T, api *fakeAPI, r *runningSource) {
				for range 3600 {
					time.Sleep(time.Second)
					if st := r.Status(); st.Fault.Message != "" ||
						time.Since(st.LastContact) > bookmarkLimit+testTimeout+testJitter {
						t.Fatalf("stale by %s: %+v", time.Since(st.LastContact), st)
					}
				}
				if n := api.count("services", "list", "stream"); n != 1 {
					t.Errorf("%d lists in an hour", n)
				}
				if n := api.count("services", "watch"); n > 90 {
					t.Errorf("%d watches in an hour", n)
				}
				api.mu.Lock()
				api.noMinuteBookmarks, api.idleLimit = false, 0
				api.mu.Unlock()
				time.Sleep(shortTime + longWatch)
				before := len(api.seen())
				time.Sleep(time.Hour)
				if n := len(api.seen()) - before; n > 3*(1+60/5) {
					t.Errorf("%d requests in an hour after the bookmarks are back", n)
				}
			})
		})
	}
}

// If a server hangs with open connections, the source detects the fault within 90 s, regardless of how old the watch
// is.
func TestHungServerIsDetected(t *testing.T) {
	for _, after := range []time.Duration{
		5 * time.Second, time.Minute, 61 * time.Second, 100 * time.Second,
		12 * time.Minute,
	} {
		t.Run(after.String(), func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
				time.Sleep(after)
				api.hang()
				waitForFault(t, r)
			})
		})
	}
}

// If the API server is down for half a minute and then no longer knows the resource versions, the source still receives
// a new Service within 8 s.
func TestNewServiceAfterOutage(t *testing.T) {
	worst := time.Duration(0)
	for range 30 {
		inBubble(t, nil, func(t *testing.T, api *fakeAPI, r *runningSource) {
			time.Sleep(3 * time.Minute)
			api.breakWith(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			time.Sleep(30 * time.Second)
			api.put("services", "new", clusterIP(9))
			oldest := api.rv
			api.setHook(func(w http.ResponseWriter, req request) bool {
				if from, _ := strconv.Atoi(req.get("resourceVersion")); req.verb == "watch" && from < oldest {
					status(w, 410, "Expired", "too old resource version")
					return true
				}
				return false
			})
			api.repair()
			back := time.Now()
			for r.names() != "new" && time.Since(back) < time.Minute {
				time.Sleep(10 * time.Millisecond)
			}
			worst = max(worst, time.Since(back))
		})
	}
	if worst > 8*time.Second {
		t.Errorf("a new Service is there after %s", worst)
	}
	t.Logf("a new Service is there after %s at most", worst)
}

// The source restarts a list that hangs, even if the source receives bookmarks for other resources.
func TestHungListIsRestarted(t *testing.T) {
	began, hung := time.Time{}, false
	inBubble(t, func(api *fakeAPI) {
		began = time.Now()
		api.brokenHandler = func(w http.ResponseWriter, r *http.Request) {
			req := request{query: r.URL.Query(), resource: path.Base(r.URL.Path), verb: verbOf(r)}
			if req.resource == "services" && !hung {
				hung = true
				<-r.Context().Done()
				return
			}
			api.answer(w, r, req)
		}
	}, func(t *testing.T, _ *fakeAPI, _ *runningSource) {
		if took := time.Since(began); took > 90*time.Second {
			t.Errorf("the source is synced after %s", took)
		}
	})
}
