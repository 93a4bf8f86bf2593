package nfttable

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/program"
	"edgeway/proxiers/plan"
)

// probeLimit is the timeout to check a few dozen rules, which is slow on a busy single-board computer.
const probeLimit = 3 * time.Minute

// Probe makes nft and the kernel validate the tables for a sample plan, which leads to every kind of rule and element.
// Probe changes nothing. The rules use an arbitrary masquerade bit.
func Probe(ctx context.Context, s Schema, sample *plan.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	nft, err := findNFT()
	if err != nil {
		return err
	}
	if err := nft.checkVersion(ctx); err != nil {
		return err
	}
	s.Table += "-probe"
	b := newBatch(newRenderer(s, kernelFamilies(), 0), newReferences(), time.Time{})
	_ = b.whole(sample, baseOptions{}, nil) // the error is nil, because the batch sends nothing
	return checked(nft.check(ctx, b.tx))
}

// checked interprets the error of a check. If the kernel killed nft, or nft ran out of memory, the check is
// inconclusive, and the error must not wrap ErrUnsupported: Edgeway would then use another backend until the next
// reload.
func checked(err error) error {
	var exit *exec.ExitError
	switch {
	case strings.Contains(saying(err), "Operation not permitted"):
		return fmt.Errorf("nft may not change rules (it needs CAP_NET_ADMIN): %w", err)
	case program.Transient(err) || undelivered(err):
		return err
	case errors.As(err, &exit):
		return fmt.Errorf("%w: nft or the kernel refuses a rule (nftables 1.0.6 and Linux 5.13 or "+
			"newer accept all rules): %w", proxiers.ErrUnsupported, err)
	}
	return err
}

// kernelFamilies returns the address families that the kernel supports. With ipv6.disable=1, the kernel has no IPv6
// sockets and rejects IPv6 rules.
func kernelFamilies() []plan.Family {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return []plan.Family{plan.IPv4}
	}
	if err == nil {
		_ = unix.Close(fd)
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}
