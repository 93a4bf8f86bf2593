package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"edgeway/test/bench/kit"
)

const oursName = "edgeway"

// unitSlack is TimerSlackNSec= of units/edgeway.service: without systemd nobody else sets it.
const unitSlack = time.Millisecond

// newEdgeway configures Edgeway with its defaults, but for paths and what would change the machine. path
// empty: build it from this repository.
func (b *bench) newEdgeway(ctx context.Context, name, path string) (*program, error) {
	p, err := b.newProgram(ctx, name)
	if err != nil {
		return nil, err
	}
	if path == "" {
		path = filepath.Join(b.dir, "edgeway")
		if err := kit.Build(ctx, path); err != nil {
			return nil, err
		}
	}
	err = p.write("edgeway.toml", fmt.Sprintf(`version = 1
[node]
name = "bench-edge"
%s
[source.lastknown]
directory = %q
[proxy]
backend = %q
[conntrack]
max_per_core = 0
[metrics]
address = "127.0.0.1:10249"
pprof = true
[control]
socket = %q
`, b.source(), p.file(memory), b.opts.mode.name, p.file("control.sock")))
	if err != nil {
		return nil, err
	}
	p.slack = unitSlack
	p.argv = []string{path, "run", "--config", p.file("edgeway.toml")}
	return p, nil
}
