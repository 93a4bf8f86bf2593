//go:build !man

// Command edgeway provides Kubernetes Services on a host that Kubernetes does not manage.
//
// Each subcommand has its own file and calls package daemon. The command's manual page is edgeway(8).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
