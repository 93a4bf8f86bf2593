package ebpf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Dir is the mount point of the BPF file system where the backend pins programs, maps and links.
const Dir = "/run/edgeway_bpf"

// layout is the version of the types in bpf/maps.h. Every change to a type in bpf/maps.h requires a new layout.
const layout = "v2"

const programsPrefix = "programs-"

// size is the capacity of the maps, in elements. An empty map uses 16 bytes of memory for each element that it can
// hold.
type size struct{ frontends, slots, members uint32 }

func (s size) services() uint32 { return max(1, s.frontends/uint32(len(origins()))) }

// sizes returns the map sizes for each value of ebpf.size. The maps use 8 MB of memory with "normal" and 70 MB with
// "large". The size "large" is enough for 100,000 Services with a million endpoints. A frontend needs one element for
// each origin of connections (pods, the host, and other hosts).
func sizes() map[string]size {
	return map[string]size{"normal": {3 << 16, 1 << 17, 1 << 17}, "large": {3 << 19, 1 << 20, 1 << 20}}
}

func sizeOf(settings map[string]any) size {
	name, _ := settings["size"].(string)
	if s, known := sizes()[name]; known {
		return s
	}
	return sizes()["normal"]
}

func tcOf(settings map[string]any) bool {
	on, _ := settings["tc"].(bool)
	return on
}

type objects struct {
	socketsMaps
	socketsPrograms
	// tcProgram handles connections that arrive at network devices. tcProgram and its maps are nil if the program is
	// not loaded.
	tcProgram             *ebpf.Program
	podRanges, podDevices *ebpf.Map
	sources               *ebpf.Map
}

func (o *objects) close() {
	_ = o.socketsMaps.Close()
	_ = o.socketsPrograms.Close()
	o.closePackets()
}

func (o *objects) closePackets() {
	_ = o.tcProgram.Close() // the program and the maps may be nil
	o.tcProgram = nil
	for _, m := range o.tcMaps() {
		_ = (*m).Close()
		*m = nil
	}
}

func (o *objects) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		socketsMapFrontends: &o.Frontends, socketsMapSlots: &o.Slots, socketsMapMembers: &o.Members, socketsMapAddresses: &o.Addresses,
		socketsMapConfig: &o.Config, socketsMapCounters: &o.Counters, socketsMapSockets: &o.Sockets, socketsMapConnections: &o.Connections,
		socketsMapTaken: &o.Taken,
	}
}

func (o *objects) programs() map[string]**ebpf.Program {
	return map[string]**ebpf.Program{
		socketsProgConnect4: &o.Connect4, socketsProgConnect6: &o.Connect6, socketsProgSendmsg4: &o.Sendmsg4, socketsProgSendmsg6: &o.Sendmsg6,
		socketsProgRecvmsg4: &o.Recvmsg4, socketsProgRecvmsg6: &o.Recvmsg6, socketsProgGetpeername4: &o.Getpeername4, socketsProgGetpeername6: &o.Getpeername6,
		socketsProgRelease: &o.Release,
	}
}

// tcMaps returns the maps that only the tc program uses.
func (o *objects) tcMaps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		packetsMapPodRanges: &o.podRanges, packetsMapPodDevices: &o.podDevices,
		packetsMapSources: &o.sources,
	}
}

// programsDir returns the directory for this version's pinned programs. The directory's name contains a hash of the BPF
// objects.
func programsDir(dir string) string {
	sum := sha256.Sum256(slices.Concat(_SocketsBytes, _PacketsBytes))
	return filepath.Join(dir, layout, programsPrefix+hex.EncodeToString(sum[:8]))
}

// openPinned opens the pinned maps and programs. If tc is set, openPinned also opens the pinned tc program and its
// maps. The error wraps fs.ErrNotExist if a socket program or one of its maps is missing, or if the size of a map
// differs from want. If want is zero, maps of any size match.
func openPinned(dir string, want size, tc bool) (_ *objects, err error) {
	o := &objects{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	for name, m := range o.maps() {
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(dir, layout, name), nil); err != nil {
			return nil, fmt.Errorf("pinned map %s: %w", name, err)
		}
	}
	for name, p := range o.programs() {
		if *p, err = ebpf.LoadPinnedProgram(filepath.Join(programsDir(dir), name), nil); err != nil {
			return nil, fmt.Errorf("pinned program %s: %w", name, err)
		}
	}
	if have := (size{o.Frontends.MaxEntries(), o.Slots.MaxEntries(), o.Members.MaxEntries()}); have != want &&
		want != (size{}) {
		return nil, fmt.Errorf("pinned maps do not have the configured size: %w", fs.ErrNotExist)
	}
	shared := []*ebpf.Map{o.Frontends, o.Slots, o.Addresses, o.Config, o.Counters, o.Taken}
	if err = requireMaps(o.Connect4, append(shared, o.Sockets, o.Connections)); err != nil {
		return nil, err
	}
	if !tc || o.openPackets(dir) != nil ||
		requireMaps(o.tcProgram, append(shared, o.podRanges, o.podDevices, o.sources)) != nil {
		o.closePackets()
	}
	return o, nil
}

func (o *objects) openPackets(dir string) (err error) {
	for name, m := range o.tcMaps() {
		if *m, err = ebpf.LoadPinnedMap(filepath.Join(dir, layout, name), nil); err != nil {
			return err
		}
	}
	o.tcProgram, err = ebpf.LoadPinnedProgram(filepath.Join(programsDir(dir), packetsProgPackets), nil)
	return err
}

// requireMaps returns an error unless the program p uses all the given maps. If other software unpins a map and Edgeway
// recreates it, the program still uses the old map.
func requireMaps(p *ebpf.Program, with []*ebpf.Map) error {
	id := func(m *ebpf.Map) ebpf.MapID {
		info, err := m.Info()
		if err != nil {
			return 0
		}
		n, _ := info.ID()
		return n
	}
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("pinned program: %w", err)
	}
	used, _ := info.MapIDs()
	for _, m := range with {
		if !slices.Contains(used, id(m)) {
			return fmt.Errorf("pinned programs do not use the pinned maps: %w", fs.ErrNotExist)
		}
	}
	return nil
}

// load loads and pins the programs and maps that are not yet pinned in dir. If tc is set, load also loads and pins the
// tc program. load mounts a BPF file system at dir if necessary, and keeps maps that are already pinned. load needs
// privileges that the daemon does not have. If the tc program fails to load, load returns that error as its first
// result. The socket programs work without the tc program.
func load(dir string, want size, tc bool) (without, err error) {
	o, err := openPinned(dir, want, tc)
	if err != nil {
		if err := mountBPF(dir); err != nil {
			return nil, err
		}
		if err := pinSockets(dir, want); err != nil {
			return nil, explain(err)
		}
	} else {
		defer o.close()
		if o.tcProgram != nil {
			return nil, nil
		}
	}
	if !tc {
		return nil, unpinTC(dir)
	}
	return explainTCError(pinPackets(dir)), nil
}

// unpinTC unpins the tc program and the maps that only the tc program uses.
func unpinTC(dir string) error {
	paths := []string{filepath.Join(programsDir(dir), packetsProgPackets)}
	for name := range (&objects{}).tcMaps() {
		paths = append(paths, filepath.Join(dir, layout, name))
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// mountBPF mounts a BPF file system at dir unless one is already mounted.
func mountBPF(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory for pinned BPF objects: %w", err)
	}
	if isBPF(dir) {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("BPF file system at %s (mounting needs CAP_SYS_ADMIN; "+
			"the unit run-edgeway_bpf.mount normally mounts the file system): %w", dir, err)
	}
	return nil
}

func isBPF(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && uint32(s.Type) == unix.BPF_FS_MAGIC
}

// pinSockets loads and pins all socket programs and the missing maps. A program keeps the maps that it was loaded with.
func pinSockets(dir string, want size) error {
	spec, err := loadSockets()
	if err != nil {
		return err
	}
	at, programs := filepath.Join(dir, layout), programsDir(dir)
	if err := os.MkdirAll(programs, 0o700); err != nil {
		return err
	}
	for name, n := range map[string]uint32{
		socketsMapFrontends: want.frontends, socketsMapSlots: want.slots, socketsMapMembers: want.members, socketsMapTaken: want.services(),
	} {
		spec.Maps[name].MaxEntries = n
		if err := unpinUnlessSize(filepath.Join(at, name), n); err != nil {
			return err
		}
	}
	var fresh socketsObjects
	if err := spec.LoadAndAssign(&fresh, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: at}}); err != nil {
		return fmt.Errorf("load the programs: %w", err)
	}
	defer fresh.Close()
	o := objects{socketsMaps: fresh.socketsMaps, socketsPrograms: fresh.socketsPrograms}
	for name, p := range o.programs() {
		if err := pinAnew(*p, filepath.Join(programs, name)); err != nil {
			return err
		}
	}
	return nil
}

func pinPackets(dir string) error {
	spec, err := loadPackets()
	if err != nil {
		return err
	}
	at := filepath.Join(dir, layout)
	// Use the sizes of the pinned maps, because LoadAndAssign rejects pinned maps whose sizes differ from the spec.
	for _, name := range []string{socketsMapFrontends, socketsMapSlots, socketsMapMembers, socketsMapTaken} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(at, name), nil)
		if err != nil {
			return fmt.Errorf("pinned map %s: %w", name, err)
		}
		spec.Maps[name].MaxEntries = m.MaxEntries()
		_ = m.Close()
	}
	var o packetsObjects
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: at}}); err != nil {
		return fmt.Errorf("load the tc program: %w", err)
	}
	defer o.Close()
	return pinAnew(o.Packets, filepath.Join(programsDir(dir), packetsProgPackets))
}

func pinAnew(p *ebpf.Program, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.Pin(path); err != nil {
		return fmt.Errorf("pin program %s: %w", filepath.Base(path), err)
	}
	return nil
}

// unpinUnlessSize unpins a map unless its size is n. Attached programs use the unpinned map until new programs replace
// them.
func unpinUnlessSize(path string, n uint32) error {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pinned map %s: %w", filepath.Base(path), err)
	}
	defer m.Close()
	if m.MaxEntries() == n {
		return nil
	}
	return os.Remove(path)
}

// removeOldVersions removes the pins left by other versions of the daemon. The caller must first attach this version's
// programs.
func removeOldVersions(dir string) error {
	list, err := os.ReadDir(filepath.Join(dir, layout))
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, layout, e.Name())
		if strings.HasPrefix(e.Name(), programsPrefix) && path != programsDir(dir) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	layouts, err := layoutsIn(dir)
	if err != nil {
		return err
	}
	for _, path := range layouts {
		if filepath.Base(path) != layout {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// layoutsIn returns the directories of all layouts. layoutsIn skips files, because the kernel may create files in a BPF
// file system (CONFIG_BPF_PRELOAD).
func layoutsIn(dir string) (paths []string, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}
