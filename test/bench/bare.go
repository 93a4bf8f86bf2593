package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"edgeway/test/bench/floor"
	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

const (
	floorName = "floor"
	// floorCommand makes this program the bare one that it measures Edgeway against.
	floorCommand = "be-the-floor"
)

// maybeFloor is the bare program, when this process was started as that.
func maybeFloor() {
	if len(os.Args) != 3 || os.Args[1] != floorCommand {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := floor.Run(ctx, os.Args[2])
	stop()
	kit.Exit(floorName, err)
}

func (b *bench) newFloor(ctx context.Context) (*program, error) {
	p, err := b.newProgram(ctx, floorName)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("own program: %w", err)
	}
	p.argv = []string{self, floorCommand, b.cluster.Kubeconfig(cluster.Edgeway)}
	return p, nil
}

// besideFloor has the bare program run, too, while something is measured in turns.
func (b *bench) besideFloor(measure func(context.Context) error) func(context.Context) error {
	if b.floor == nil {
		return measure
	}
	return func(ctx context.Context) error {
		if _, err := b.floor.start(); err != nil {
			return err
		}
		if err := b.follow(ctx, b.floor); err != nil {
			return fmt.Errorf("%w; its log ends:\n%s", err, b.floor.tail())
		}
		if err := measure(ctx); err != nil {
			return err
		}
		return b.clear(ctx, b.floor)
	}
}
