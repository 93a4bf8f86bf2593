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

// probeLimit is the timeout of a check of a few dozen rules, which is slow on a busy single-board computer.
const probeLimit = 3 * time.Minute

// Probe asks nft and the kernel to validate a transaction with a sample plan, which contains every kind of rule and
// element. Probe changes nothing. The rules use an arbitrary masquerade bit.
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
	_ = b.whole(sample, baseOptions{}, nil) // the batch sends nothing
	return checked(nft.check(ctx, b.tx))
}

// checked interprets the error that a check returned. If nft was killed or ran out of memory, the check is
// inconclusive. Edgeway must not fall back to another backend after an inconclusive check, because the other backend
// would serve until the next reload.
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

// kernelFamilies returns the address families that the kernel supports. A kernel that was started with ipv6.disable=1
// has no IPv6 sockets and rejects IPv6 rules.
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
