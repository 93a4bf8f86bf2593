package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
)

// auditPolicy restricts the API server's audit log to the hosts' requests.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
omitManagedFields: true
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts:edgeway"]
- level: None
`

type request struct {
	at   time.Time
	host string
	// list reports whether the request is a list request, or a watch request that first returns all objects.
	list bool
	// rejectionStatus is the HTTP status of a rejected request, or 0.
	rejectionStatus int
}

type auditEvent struct {
	Stage                    string
	RequestURI               string
	UserAgent                string
	RequestReceivedTimestamp time.Time
	ResponseStatus           struct{ Code int }
}

// readAudit reads the hosts' requests from the audit log, in order, and ignores an incomplete last line.
func readAudit(path string) ([]request, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer f.Close()
	var all []request
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		one, ok, err := parseEvent(line)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, one)
		}
	}
}

// parseEvent parses a line that records the receipt or rejection of a host's request. For any other line, ok is false.
func parseEvent(line []byte) (r request, ok bool, err error) {
	var e auditEvent
	if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
		return r, false, fmt.Errorf("audit log line: %w", err)
	}
	host, ours := strings.CutPrefix(e.UserAgent, userAgent)
	if !ours {
		return r, false, nil
	}
	uri, err := url.Parse(e.RequestURI)
	if err != nil {
		return r, false, fmt.Errorf("audit log line: %w", err)
	}
	query := uri.Query()
	r = request{at: e.RequestReceivedTimestamp, host: host, list: query.Get("watch") == "" ||
		query.Get("sendInitialEvents") == "true"}
	switch {
	case e.Stage == "RequestReceived":
		return r, true, nil
	case e.Stage == "ResponseComplete" && e.ResponseStatus.Code >= 400:
		r.rejectionStatus = e.ResponseStatus.Code
		return r, true, nil
	}
	return r, false, nil
}

type counts struct {
	all, lists, refused int
	most, mostLists     int // the values for the busiest second
}

// count counts the requests in the interval [from, from+length).
func count(all []request, from time.Time, length time.Duration) counts {
	var c counts
	bySecond, listsBySecond := map[time.Duration]int{}, map[time.Duration]int{}
	for _, r := range all {
		after := r.at.Sub(from)
		if after < 0 || after >= length {
			continue
		}
		if r.rejectionStatus > 0 {
			c.refused++
			continue
		}
		c.all++
		bySecond[after/time.Second]++
		c.most = max(c.most, bySecond[after/time.Second])
		if r.list {
			c.lists++
			listsBySecond[after/time.Second]++
			c.mostLists = max(c.mostLists, listsBySecond[after/time.Second])
		}
	}
	return c
}
