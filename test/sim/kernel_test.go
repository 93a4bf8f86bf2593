package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// kernel is a backend that stores the rules in a map instead of in the kernel. As in the real kernel, each Change
// modifies the stored rules, so an incorrect Change leaves incorrect rules behind.
type kernel struct {
	name     string
	mu       sync.Mutex
	services map[portKey]*plan.ServicePort
	node     *plan.Node
	fault    kernelFault
	drift    func(reason string) // the running process sets drift, which is nil if the daemon is stopped
	applies  int
	good     time.Time // the start of the last successful Apply, or zero if the rules from that Apply were lost
	// Apply calls onRemove for each ServicePort that it removes, and onEmpty for each ServicePort that loses all of its
	// endpoints.
	onRemove, onEmpty func(*kernel, portKey)
}

type portKey struct {
	name   plan.ServicePortName
	family plan.Family
}

func (k portKey) String() string { return fmt.Sprintf("%s (%s)", k.name, k.family) }

// kernelFault describes how the kernel misbehaves. The zero value describes a healthy kernel.
type kernelFault struct {
	fails  bool
	half   bool // if fails is also set, Apply performs half of the change
	stalls bool // Apply blocks until the context is done
	slow   time.Duration
	refuse map[string]bool // the refused Services, by namespace/name
	names  bool            // error messages contain the name of a refused Service
	loses  bool            // Apply loses a rule before it returns
	// panics reports whether Apply panics for the named Service, or for the plan as a whole if name is "".
	panics func(name string) bool
}

var errKernel = errors.New("simulated failure of the kernel")

func newKernel(name string) *kernel {
	return &kernel{name: name, services: map[portKey]*plan.ServicePort{}}
}

func keyOf(s *plan.ServicePort) portKey { return portKey{s.Name, s.Family} }

func (k *kernel) Apply(ctx context.Context, c proxiers.Change) error {
	k.mu.Lock()
	f := k.fault
	k.applies++
	began := time.Now()
	k.mu.Unlock()
	if f.stalls {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(time.Millisecond + f.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, s := range c.Next.Services {
		all = append(all, s.Name.Namespace+"/"+s.Name.Name)
	}
	f.panicNow(all)
	if err := f.refusal(c); err != nil {
		return err
	}
	if f.fails {
		if f.half {
			k.change(c.Changed[:len(c.Changed)/2], nil)
		}
		return errKernel
	}
	removed := c.Removed
	if c.Prev == nil { // a full sync reads the existing rules first
		for key, s := range k.services {
			if c.Next.Find(key.name, key.family) == nil {
				removed = append(removed[:len(removed):len(removed)], s)
			}
		}
	}
	k.change(c.Changed, removed)
	k.node, k.good = c.Next.Node, began
	if f.loses && k.drift != nil {
		for key := range k.services {
			delete(k.services, key)
			break
		}
		k.good = time.Time{}
		k.drift("simulated loss of a rule")
	}
	return nil
}

func (k *kernel) change(changed, removed []*plan.ServicePort) {
	for _, s := range removed {
		if _, held := k.services[keyOf(s)]; held {
			k.onRemove(k, keyOf(s))
		}
		delete(k.services, keyOf(s))
	}
	for _, s := range changed {
		before := k.services[keyOf(s)]
		k.services[keyOf(s)] = s
		if before != nil && len(before.Serving) > 0 && len(s.Serving) == 0 {
			k.onEmpty(k, keyOf(s))
		}
	}
}

func (f *kernelFault) refusal(c proxiers.Change) error {
	var whom []*plan.ServicePort
	for _, s := range c.Changed {
		if f.refuse[s.Name.Namespace+"/"+s.Name.Name] {
			whom = append(whom, s)
		}
	}
	switch {
	case len(whom) == 0:
		return nil
	case f.names:
		return &proxiers.Refusal{Services: whom[:1], Err: errors.New("simulated refusal")}
	}
	return fmt.Errorf("simulated: %w", proxiers.ErrRefused)
}

func (k *kernel) set(f kernelFault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = f
}

func (k *kernel) listen(drift func(reason string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drift = drift
}

// removeServicePorts removes the ServicePorts whose index in sorted order is divisible by part, as another program
// might. If the daemon is running, removeServicePorts also reports drift to the daemon.
func (k *kernel) removeServicePorts(part int) {
	k.mu.Lock()
	for i, key := range slices.SortedFunc(maps.Keys(k.services), compareKeys) {
		if i%part == 0 {
			delete(k.services, key)
		}
	}
	drift := k.drift
	k.good = time.Time{}
	k.mu.Unlock()
	if drift != nil {
		drift("simulated loss of rules")
	}
}

// latestApply returns the start time of the last successful Apply.
func (k *kernel) latestApply() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.good
}

func (k *kernel) holds(key portKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.services[key] != nil
}

func compareKeys(a, b portKey) int {
	if c := a.name.Compare(b.name); c != 0 {
		return c
	}
	return int(a.family) - int(b.family)
}

// difference describes how the kernel differs from a plan, or returns "" if nothing differs. A ServicePort may be
// missing or outdated if skip returns true for it.
func (k *kernel) difference(p *plan.Plan, skip func(portKey) bool) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := 0
	for _, s := range p.Services {
		held := k.services[keyOf(s)]
		if held != nil {
			seen++
		}
		switch {
		case skip(keyOf(s)):
		case held == nil:
			return fmt.Sprintf("%s: %s is missing", k.name, keyOf(s))
		case held.Digest != s.Digest:
			return fmt.Sprintf("%s: %s is another version", k.name, keyOf(s))
		}
	}
	if seen != len(k.services) {
		for key := range k.services {
			if p.Find(key.name, key.family) == nil {
				return fmt.Sprintf("%s: %s is still there", k.name, key)
			}
		}
	}
	if k.node == nil || !reflect.DeepEqual(k.node, p.Node) {
		return k.name + ": the addresses of the host are others"
	}
	return ""
}
