package doctor

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/fault"
)

// watched is a System that records the first error that does not describe the host, such as EMFILE. A check that
// interpreted EMFILE as a result would report a fault that the host does not have.
type watched struct {
	System
	err error
}

// exhausted lists the errors that indicate a lack of file descriptors or memory.
var exhausted = []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}

// routeAnswers lists the kernel's errors for an address without a route. See System.NextHop.
var routeAnswers = []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL, unix.EACCES}

func isOneOf(err error, list []error) bool {
	return slices.ContainsFunc(list, func(target error) bool { return errors.Is(err, target) })
}

// Read implements System.
func (w *watched) Read(path string) (string, error) {
	text, err := w.System.Read(path)
	if w.err == nil && isOneOf(err, exhausted) {
		w.err = err
	}
	return text, err
}

// NextHop implements System. Only the errors in routeAnswers mean that there is no route.
func (w *watched) NextHop(to netip.Addr) (nodeinfo.NextHop, error) {
	found, err := w.System.NextHop(to)
	if w.err == nil && err != nil && !isOneOf(err, routeAnswers) {
		w.err = err
	}
	return found, err
}

// unknown returns the fault for a check that could not inspect the host.
func unknown(check Check, err error) fault.Fault {
	return fault.New(check.Name, fault.Warning, "edgeway doctor  # again, when the cause is gone", "cannot tell: %v", err)
}
