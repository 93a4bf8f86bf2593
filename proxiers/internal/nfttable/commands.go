package nfttable

import (
	"context"

	"golang.org/x/sys/unix"
)

// Program runs nft commands that the caller wrote, for example because knftables (v0.0.22) cannot express the commands.
type Program struct{ nft *tool }

// FindProgram searches PATH for nft.
func FindProgram() (*Program, error) {
	nft, err := findNFT()
	if err != nil {
		return nil, err
	}
	return &Program{nft}, nil
}

// Run executes the commands as one transaction.
func (p *Program) Run(ctx context.Context, commands string) error {
	return p.nft.feed(ctx, commands, "-f", "-")
}

// Check makes nft and the kernel validate the commands without executing them. Check returns the same errors as Probe.
func (p *Program) Check(ctx context.Context, commands string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := p.nft.checkVersion(ctx); err != nil {
		return err
	}
	return checked(p.nft.feed(ctx, commands, "--check", "-f", "-"))
}

// Refused reports whether the kernel rejected commands or a batch with the error number.
func Refused(err error, errno unix.Errno) bool { return refusedWith(err, errno) }
