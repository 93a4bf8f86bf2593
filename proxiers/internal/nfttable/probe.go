package nfttable

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/program"
	"edgeway/proxiers/plan"
)

// probeLimit is the timeout for the validation of a few dozen rules. Validation is slow on a busy single-board
// computer.
const probeLimit = 3 * time.Minute

// Probe has nft and the kernel validate the tables for a sample plan that needs every kind of rule and element. Probe
// changes nothing. The rules use an arbitrary masquerade bit.
func Probe(ctx context.Context, s Schema, sample *plan.Plan) error {
	nft, err := FindProgram()
	if err != nil {
		return err
	}
	s.Table += "-probe"
	b := newBatch(newRenderer(s, proxiers.KernelFamilies(), 0), newReferences(), time.Time{})
	_ = b.fillTables(sample, baseOptions{}, nil) // the error is nil, because the batch sends nothing
	text, err := commands(b.tx)
	if err != nil {
		return err
	}
	return nft.Validate(ctx, text)
}

// wrapProbeError wraps ErrUnsupported around the error from a probe if nft or the kernel rejects a rule. If the kernel
// killed nft, or nft ran out of memory, the error must not wrap ErrUnsupported. An error that wraps ErrUnsupported
// causes Edgeway to use another backend until the next reload.
func wrapProbeError(err error) error {
	var exit *exec.ExitError
	switch {
	case strings.Contains(rejectionMessage(err), "Operation not permitted"):
		return fmt.Errorf("nft is not allowed to change rules (it needs CAP_NET_ADMIN): %w", err)
	case program.Transient(err) || isDeliveryError(err):
		return err
	case errors.As(err, &exit):
		return fmt.Errorf("%w: nft or the kernel rejects a rule "+
			"(nftables 1.0.6 and Linux 5.13 or newer accept all rules): %w", proxiers.ErrUnsupported, err)
	}
	return err
}
