package nfttable

import (
	"context"

	"golang.org/x/sys/unix"
)

// Program runs nft commands that the caller wrote, such as those that knftables (v0.0.22) cannot express.
type Program struct{ nft *tool }

// FindProgram finds the nft program.
func FindProgram() (*Program, error) {
	nft, err := findNFT()
	if err != nil {
		return nil, err
	}
	return &Program{nft}, nil
}

// Run executes either all of the commands or none.
func (p *Program) Run(ctx context.Context, commands string) error {
	return p.nft.feed(ctx, commands, "-f", "-")
}

// Check asks nft and the kernel to validate the commands without executing them. Check returns the same errors as
// Probe.
func (p *Program) Check(ctx context.Context, commands string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := p.nft.checkVersion(ctx); err != nil {
		return err
	}
	return checked(p.nft.feed(ctx, commands, "--check", "-f", "-"))
}

// Refused reports whether the kernel rejected commands or a batch with this error number.
func Refused(err error, errno unix.Errno) bool { return refusedWith(err, errno) }
