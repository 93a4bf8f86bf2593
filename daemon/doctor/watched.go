package doctor

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source/kube"
	"edgeway/proxiers/fault"
)

// watched is a System that remembers the first error that says nothing about the host. A check that takes such an
// error for an answer reports a fault that the host does not have.
type watched struct {
	System
	err error
}

// exhausted lists the errors of a process, or a system, without free descriptors or memory.
var exhausted = []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}

// routeAnswers lists the kernel's answers that there is no route; see System.Way.
var routeAnswers = []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL, unix.EACCES}

func isOneOf(err error, list []error) bool {
	return slices.ContainsFunc(list, func(target error) bool { return errors.Is(err, target) })
}

// note remembers the first error that is in exhausted.
func (w *watched) note(err error) {
	if w.err == nil && isOneOf(err, exhausted) {
		w.err = err
	}
}

// Read implements System.
func (w *watched) Read(path string) (string, error) {
	text, err := w.System.Read(path)
	w.note(err)
	return text, err
}

// Way implements System. Only the kernel's answers say that there is no route.
func (w *watched) Way(to netip.Addr) (nodeinfo.Way, error) {
	found, err := w.System.Way(to)
	if w.err == nil && err != nil && !isOneOf(err, routeAnswers) {
		w.err = err
	}
	return found, err
}

// Links implements System.
func (w *watched) Links() ([]string, error) {
	links, err := w.System.Links()
	w.note(err)
	return links, err
}

// Advertised implements System.
func (w *watched) Advertised() ([]string, error) {
	links, err := w.System.Advertised()
	w.note(err)
	return links, err
}

// watch returns the host with a System and functions whose errors are remembered.
func watch(h *Host) (*Host, *watched) {
	at, w := *h, &watched{System: h.System}
	at.System = w
	if h.Contact != nil {
		at.Contact = func(ctx context.Context) (kube.Contact, error) {
			c, err := h.Contact(ctx)
			w.note(err)
			return c, err
		}
	}
	if h.Credentials != nil {
		at.Credentials = func() ([]fault.Fault, error) {
			faults, err := h.Credentials()
			w.note(err)
			return faults, err
		}
	}
	if h.Backend.Probe != nil {
		at.Backend.Probe = func(ctx context.Context) error {
			err := h.Backend.Probe(ctx)
			w.note(err)
			return err
		}
	}
	at.Saved = slices.Clone(h.Saved)
	for i := range at.Saved {
		look := h.Saved[i].At
		at.Saved[i].At = func() (time.Time, error) {
			t, err := look()
			w.note(err)
			return t, err
		}
	}
	return &at, w
}

// unknown returns what replaces all faults of a check that could not look.
func unknown(check Check, err error) fault.Fault {
	fix := "edgeway doctor  # again, when the cause is gone"
	switch {
	case errors.Is(err, unix.EMFILE):
		fix = "ls /proc/$(pidof -s edgeway)/fd | wc -l  # then raise LimitNOFILE= of edgeway.service, or ulimit -n of this shell"
	case errors.Is(err, unix.ENFILE):
		fix = "sysctl fs.file-nr  # end the program with the most open files, or raise fs.file-max"
	}
	return fault.New(check.Name, fault.Warning, fix, "cannot tell: %v", err)
}
