package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
	"edgeway/test/hostile"
)

// FuzzRequest sends arbitrary requests to the server. Unless net/http rejects the request, the server must respond with
// JSON of at most 64 KiB plus 64 times the size of the request.
func FuzzRequest(f *testing.F) {
	s := newServer(Options{
		Logger: slog.New(slog.DiscardHandler), Lookups: testLookups(), Position: noPlace, DeadEndpoints: noneDead, Connections: noneCounted,
		Reload: func(context.Context) error { return nil },
		Status: func() Status { return Status{} },
		State:  func() pipeline.State { return pipeline.State{AppliedPlan: testPlan()} },
	}, nil)
	handler := s.handler()
	request := func(method, what string, query url.Values) []byte {
		return []byte(method + " /v1/" + what + "?" + query.Encode() + " HTTP/1.1\r\nHost: edgeway\r\n\r\n")
	}
	explain := func(src, dst, proto string) {
		f.Add(request(http.MethodGet, "explain", url.Values{"src": {src}, "dst": {dst}, "proto": {proto}}))
	}
	explain("10.1.0.9@cni0", "10.96.0.1:80", "tcp")
	explain("host", "127.0.0.1:30080/TCP", "")
	explain("host", "[::ffff:127.0.0.1]:30080", "udp")
	explain("fe80::1%eth0", "[2001:db8::1%\x1b[2J]:80", "sctp")
	explain("::ffff:10.1.0.9", "[::]:0", "\x00")
	explain("", "", "")
	explain("192.0.2.9", "default/web:http/tcp", "")
	explain("host", "localhost:30080", "")
	explain("host", "a/b:\x1b[2J/udp", "")
	explain("host@", "0.0.0.0:65536", strings.Repeat("x", 1000))
	for _, name := range []string{
		"default/web", "default/nothing", "/", "\x1b[2J", "a/b/c",
		strings.Repeat("x", 1000),
	} {
		f.Add(request(http.MethodGet, "plan", url.Values{"service": {name}}))
	}
	f.Add(request(http.MethodGet, "status", nil))
	f.Add(request(http.MethodGet, "services", nil))
	for _, only := range []string{
		"default", "default/web", "default/wbe", "/", "\x1b[2J", "a/b/c",
		strings.Repeat("x", 1000),
	} {
		f.Add(request(http.MethodGet, "services", url.Values{"only": {only}}))
	}
	f.Add(request(http.MethodPost, "reload", nil))
	f.Add(request(http.MethodDelete, "../../etc/passwd", nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if limit := 1<<16 + 64*len(raw); w.Body.Len() > limit {
			t.Errorf("%d bytes of answer to %d", w.Body.Len(), len(raw))
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%d: no JSON: %q", w.Code, w.Body)
		}
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%d: %q", w.Code, w.Body)
		}
	})
}

type canned []byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return http.ReadResponse(bufio.NewReader(bytes.NewReader(c)), r)
}

// FuzzAnswer passes arbitrary daemon responses to the commands. The commands' output must not contain terminal control
// characters.
func FuzzAnswer(f *testing.F) {
	add := func(status string, value any) {
		body, err := json.Marshal(value)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte("HTTP/1.1 " + status + "\r\n\r\n" + string(body)))
	}
	const escape = "\x1b]0;owned\x07\x1b[2J\n\u202e\u009b2J"
	add("200 OK", Status{
		Version: escape, Config: escape, Node: &plan.Node{Name: escape}, Zone: escape, Shortcut: []string{escape},
		Report:  health.Report{Faults: []fault.Fault{{ID: escape, Message: escape}}, Time: time.Unix(-1<<30, 0)},
		Sources: []StatusSource{{Name: escape, Status: source.Status{Fault: fault.Fault{Message: escape}}}}, Problems: StatusProblems{Total: -1, FirstFaults: []fault.Fault{{Message: escape}}},
		Started: time.Unix(1<<35, 0),
	})
	add("200 OK", Explanation{
		Source: escape, Interface: escape, Verdict: escape, Reason: escape, Service: escape,
		Fix: escape, NextHop: escape, Faults: []fault.Fault{{Message: escape, Fix: escape}}, Gaps: []string{escape},
	})
	add("200 OK", ServiceList{Items: []ServiceItem{
		{Namespace: escape, Name: strings.Repeat("x", 300), Source: escape, State: escape, Faults: []fault.Fault{{Message: escape, Fix: escape}}},
		{Type: escape, ReadyEndpoints: -1, AllEndpoints: 1 << 30, Ports: []ServiceItemPort{{Protocol: escape}}},
	}})
	add("500 "+escape, failure{escape})
	add("422 x", failure{escape})
	f.Add([]byte("HTTP/1.1 302 x\r\nLocation: /\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := NewClient("/nowhere")
		c.http.Transport = canned(raw)
		var out strings.Builder
		if s, err := c.Status(t.Context()); err == nil {
			out.WriteString(formatText(s, columns, true))
		}
		if e, err := c.Explain(t.Context(), "host", "10.96.0.1:80", ""); err == nil {
			out.WriteString(formatText(e, columns, false))
		}
		if list, err := c.Services(t.Context(), "a/b"); err == nil {
			out.WriteString(formatText(ServiceTable{ServiceList: list}, columns, false))
			out.WriteString(formatText(ServiceTable{ServiceList: list, Wide: true}, 0, false))
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if bad := hostile.FindControl(line); bad != "" {
				t.Errorf("printed: %s", bad)
			}
		}
		if out.Len() > 1<<16+512*len(raw) { // all lines of a table have the same width
			t.Errorf("%d bytes printed of %d", out.Len(), len(raw))
		}
	})
}
