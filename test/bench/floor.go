package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"edgeway/test/bench/floor"
	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

const (
	floorName = "floor"
	// floorCommand is the first argument of the process that runs package floor.
	floorCommand = "be-the-floor"
)

// runFloorProcess runs package floor and exits if the first argument of this process is floorCommand.
func runFloorProcess() {
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

// withFloor returns a function that starts floor, calls measure and stops floor, so that measure includes floor in its
// measurements.
func (b *bench) withFloor(measure func(context.Context) error) func(context.Context) error {
	if b.floor == nil {
		return measure
	}
	return func(ctx context.Context) error {
		if _, err := b.floor.start(); err != nil {
			return err
		}
		if err := b.switchTo(ctx, b.floor); err != nil {
			return err
		}
		ready, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := b.floor.host.reach(ready, b.sample()); err != nil {
			return fmt.Errorf("%w; the end of the program's log:\n%s", err, b.floor.tail())
		}
		if err := measure(ctx); err != nil {
			return err
		}
		if err := b.floor.stop(); err != nil {
			return err
		}
		return b.reset(ctx, b.floor)
	}
}
