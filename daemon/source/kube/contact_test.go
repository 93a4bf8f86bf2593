package kube

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestTryTellsOfAnswerClockAndRefusal(t *testing.T) {
	t.Parallel()
	code, asked := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(code)
	}))
	o := Options{Kubeconfig: kubeconfig(t, server.URL, ""), Logger: slog.New(slog.DiscardHandler)}
	c, err := Try(t.Context(), o)
	if err != nil || c.Server != server.URL || c.Took <= 0 || asked != "/api/v1/services?limit=1" {
		t.Errorf("%+v %v, asked for %s", c, err, asked)
	}
	if off := c.Ahead - time.Hour; !c.Dated || off < -3*time.Second || off > 3*time.Second {
		t.Errorf("the clock is said to be %s ahead, want an hour", c.Ahead)
	}
	code, o.Namespaces = http.StatusForbidden, []string{"shop"}
	c, err = Try(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "403") || !c.Dated || asked != "/api/v1/namespaces/shop/services?limit=1" {
		t.Errorf("refused: %+v %v, asked for %s", c, err, asked)
	}
	server.Close()
	if c, err = Try(t.Context(), o); err == nil || !strings.Contains(err.Error(), "connection refused") || c.Dated {
		t.Errorf("nobody there: %+v %v", c, err)
	}
}
