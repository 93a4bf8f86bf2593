package daemon

import (
	"errors"
	"fmt"
	"net/http"

	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

// panicConditions names the parts that panicked within the last ten minutes. They run again, and the kernel still
// forwards.
func panicConditions(faults []contain.Fault) (out []fault.Fault) {
	for _, f := range faults {
		out = append(out, fault.Fault{
			ID: "panic", Severity: fault.Warning, Since: f.Last,
			Message: fmt.Sprintf("A fault of Edgeway stopped its part %q %d times within ten minutes, and the part runs again: %s. "+
				"The log has the stack", f.Part, f.Times, f.Err),
		})
	}
	return out
}

// answering records the panic of a handler. net/http (Go 1.26) would only write it to its own log. Such a panic never
// ends the daemon, because clients of other hosts send the requests.
func (c *Core) answering(part string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := contain.Call(func() error {
			h.ServeHTTP(w, r)
			return nil
		})
		if p, ok := errors.AsType[*contain.Panic](err); ok {
			if p.Value != http.ErrAbortHandler { //nolint:errorlint // a value of recover
				c.parts.Record(part, err)
			}
			panic(http.ErrAbortHandler) // ends the connection
		}
	})
}
