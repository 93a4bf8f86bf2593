package iptables

import "edgeway/proxiers/plan"

// watcher notices that another program changed or removed rules of ours. All methods may be called from
// any goroutine.
type watcher interface {
	// own runs a restore of ours over that many tables, and reports what others did before or meanwhile.
	// big says that it changes more than about a thousand rules.
	own(tables int, big bool, commit func() error) error
	// forget drops what was noticed so far, and what was reported: a full sync begins.
	forget()
	// run reports until close.
	run()
	close() error
}

// watchOptions are what both watchers are made with.
type watchOptions struct {
	families []plan.Family
	// notify is called without any lock held. After it there is silence until forget.
	notify func(reason string)
	// intact reads a table from the kernel and compares it with what we wrote: the reason is empty when it is
	// so. settled false says that it can not be told now, because what the kernel should have is not known.
	// Only the canary calls it, and entries, with its lock held: from run, and from own after the commit, so
	// that what the commit changed counts.
	intact func(f plan.Family, table string) (reason string, settled bool)
	// entries is how many entries a table of iptables-legacy has for what we wrote: one for each rule, and two
	// for each chain.
	entries func(f plan.Family, table string) (n int, settled bool)
}
