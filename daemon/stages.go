package daemon

import (
	"context"
	"fmt"

	"edgeway/daemon/pipeline"
	"edgeway/proxiers"
)

// newStages creates the backend and its followers.
func (i *instance) newStages(ctx context.Context) error {
	before := i.opts.InForce.backend
	env := i.env(i.component.Name)
	env.Logger = i.logger.With("backend", i.component.Name)
	env.Takeover = before != "" && before != i.component.Name
	if err := i.newStage(ctx, i.component, env); err != nil {
		return fmt.Errorf("backend %s: %w", i.component.Name, err)
	}
	followers := followers(i.cfg, i.component, i.opts.Shared)
	for _, f := range followers {
		switch {
		case !f.on:
		case f.shared != nil:
			i.stages = append(i.stages, pipeline.Stage{Name: f.Name, Applier: f.shared})
		default:
			if err := i.newStage(ctx, f.Component, i.env(f.Name)); err != nil {
				return fmt.Errorf("follower %s: %w", f.Name, err)
			}
		}
	}
	i.leftovers = newLeftovers(unused(Backends(), i.component.Name, followers), cleanupEnv(i.cfg, i.logger),
		i.component.Name, before)
	return nil
}

func (i *instance) newStage(ctx context.Context, c proxiers.Component, env proxiers.Env) error {
	p, err := c.New(ctx, env)
	if err != nil {
		return err
	}
	i.stages = append(i.stages, pipeline.Stage{Name: c.Name, Applier: p})
	i.closers = append(i.closers, p)
	return nil
}

func (i *instance) env(stage string) proxiers.Env {
	return proxiers.Env{
		Logger:        i.logger.With("stage", stage),
		Families:      kernelFamilies(),
		MasqueradeBit: i.cfg.Proxy.MasqueradeBit,
		Settings:      i.cfg.Settings(stage),
		Drift:         func(reason string) { i.pipeline.RequestFull(stage, reason) },
		Wake:          i.pipeline.Wake,
		Progress:      i.pipeline.Progress,
		Contain: func(part string, run func()) {
			i.parts.Loop(stage+" "+part, run, func() { i.pipeline.RequestFull(stage, "panic of "+part) })
		},
	}
}
