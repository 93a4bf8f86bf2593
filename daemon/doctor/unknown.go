package doctor

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/fault"
)

// errorRecorder is a System that records the first error, such as EMFILE, that prevents a check from inspecting the
// host. A check that interpreted EMFILE as a result would report a fault that the host does not have.
type errorRecorder struct {
	System
	err error
}

// exhaustionErrors lists the errors that indicate a lack of file descriptors or memory.
var exhaustionErrors = []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}

// noRouteErrors lists the kernel's errors for an address without a route. See System.NextHop.
var noRouteErrors = []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL, unix.EACCES}

func isOneOf(err error, list []error) bool {
	return slices.ContainsFunc(list, func(target error) bool { return errors.Is(err, target) })
}

// Read implements System.
func (w *errorRecorder) Read(path string) (string, error) {
	text, err := w.System.Read(path)
	if w.err == nil && isOneOf(err, exhaustionErrors) {
		w.err = err
	}
	return text, err
}

// NextHop implements System. Only the errors in noRouteErrors mean that there is no route.
func (w *errorRecorder) NextHop(to netip.Addr) (nodeinfo.NextHop, error) {
	found, err := w.System.NextHop(to)
	if w.err == nil && err != nil && !isOneOf(err, noRouteErrors) {
		w.err = err
	}
	return found, err
}

// unknownFault returns the fault for a check that could not inspect the host.
func unknownFault(check Check, err error) fault.Fault {
	return fault.New(check.Name, fault.Warning, "edgeway doctor  # run again after correcting the error",
		"cannot complete the check: %v", err)
}
