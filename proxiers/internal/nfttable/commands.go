package nfttable

import (
	"context"

	"golang.org/x/sys/unix"
)

// Program is nft for who writes its commands himself, as for what knftables (v0.0.22) has no words for.
type Program struct{ nft *tool }

// FindProgram looks for nft.
func FindProgram() (*Program, error) {
	nft, err := findNFT()
	if err != nil {
		return nil, err
	}
	return &Program{nft}, nil
}

// Run has the kernel do all of the commands, or nothing.
func (p *Program) Run(ctx context.Context, commands string) error {
	return p.nft.feed(ctx, commands, "-f", "-")
}

// Check has nft and the kernel say whether they would do the commands. The errors are those of Probe.
func (p *Program) Check(ctx context.Context, commands string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := p.nft.checkVersion(ctx); err != nil {
		return err
	}
	return checked(p.nft.feed(ctx, commands, "--check", "-f", "-"))
}

// Refused says that the kernel refused commands, or a batch, with this number.
func Refused(err error, errno unix.Errno) bool { return refusedWith(err, errno) }
