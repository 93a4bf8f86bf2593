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

// probeLimit bounds the check of a few dozen rules, which a slow board with other work may take long for.
const probeLimit = 3 * time.Minute

// Probe has nft and the kernel check a transaction with all of a plan, which has every kind of rule and element. It
// changes nothing. Its mark is that of any masquerade bit.
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
	_ = b.whole(sample, baseOptions{}, nil) // it does not send
	return checked(nft.check(ctx, b.tx))
}

// checked says what a refused check means. An nft that was killed, or found no memory, has not checked anything:
// another backend must not serve for that, because it would serve until the next reload.
func checked(err error) error {
	var exit *exec.ExitError
	switch {
	case strings.Contains(saying(err), "Operation not permitted"):
		return fmt.Errorf("nft may not change rules (it needs CAP_NET_ADMIN): %w", err)
	case program.Transient(err) || undelivered(err):
		return err
	case errors.As(err, &exit):
		return fmt.Errorf("%w: nft or the kernel refuses a rule (nftables 1.0.6 and Linux 5.13 or newer are known to do): %w", proxiers.ErrUnsupported, err)
	}
	return err
}

// kernelFamilies gives the families that the kernel has. Started with ipv6.disable=1 it has no sockets of IPv6, and
// refuses rules of the family.
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
