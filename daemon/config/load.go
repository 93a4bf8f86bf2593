package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edgeway/daemon/files"
	"edgeway/proxiers"
)

// Load reads the main file and then, in lexical order, its drop-ins: the files conf.d/*.toml next to the main file. The
// last file that sets a key wins. Load joins the errors from all files. Each error is an *Error. backends holds the
// allowed values of proxy.backend.
func Load(path string, backends []proxiers.Component) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, readError(path, err)
	}
	dropIns, err := dropIns(filepath.Join(filepath.Dir(path), "conf.d"))
	if err != nil {
		return nil, err
	}
	var all []file
	var errs []error
	for _, name := range append([]string{path}, dropIns...) {
		data, err := files.Read(name, files.SmallLimit)
		if err != nil {
			errs = append(errs, readError(name, err))
		}
		all = append(all, file{name, data})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	return load(all, strings.ToLower(strings.TrimSpace(host)), backends)
}

// dropIns returns the paths of the drop-ins in lexical order, or an empty list if the directory does not exist.
func dropIns(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, readError(dir, err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// IgnoredFiles returns the files in conf.d that look like drop-ins but that Load ignores because of their extensions.
func IgnoredFiles(path string) (out []string) {
	dir := filepath.Join(filepath.Dir(path), "conf.d")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // Load reports the same error
	}
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".cfg", ".ini", ".tml", ".txt", ".yaml", ".yml", ".json"},
			filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// readError returns an Error for the file called name, and unwraps an fs.PathError, whose text would repeat the file
// name.
func readError(name string, err error) error {
	advice := files.Advice(name, err)
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	if advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	return &Error{File: name, Err: err}
}

type file struct {
	name string
	data []byte
}

// load merges the files. The first file must be the main file.
func load(files []file, hostname string, backends []proxiers.Component) (*Config, error) {
	c := defaultConfig(backends)
	l := loader{keys: values(c, backends), positions: make(map[string]*Error)}
	for i, f := range files {
		settings, err := decode(f.name, f.data)
		if err != nil {
			l.errs = append(l.errs, err)
			continue
		}
		l.version(f.name, settings, i == 0)
		for _, s := range settings {
			if s.key != versionKey {
				l.set(f.name, s)
			}
		}
	}
	if c.Node.Name == "" {
		c.Node.Name = hostname
		if err := nodeName(hostname); err != nil {
			l.addError(files[0].name, "node.name",
				fmt.Errorf("must be set, because the host name is unusable: %w", err))
		}
	}
	if len(l.errs) == 0 { // after an error, the affected key still has its default
		l.validate(files[0].name, c)
	}
	if err := errors.Join(l.errs...); err != nil {
		return nil, err
	}
	c.RemovedKeys = l.removedKeys
	return c, nil
}

type loader struct {
	keys      map[string]value
	positions map[string]*Error // positions holds the file and line that last set each key
	errs      []error
	// removedKeys lists the removed keys that the files set, in file order.
	removedKeys []RemovedKey
}

const versionKey = "version"

func (l *loader) version(name string, settings []setting, main bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == versionKey })
	switch {
	case i < 0 && main:
		l.errs = append(l.errs,
			&Error{File: name, Key: versionKey, Err: fmt.Errorf("is missing: write version = %d in the file", Version)})
	case i < 0:
	case settings[i].value != int64(Version):
		l.errs = append(l.errs, &Error{
			File: name, Line: settings[i].line, Key: versionKey,
			Err: fmt.Errorf("must be %d, the only version that this build supports", Version),
		})
	}
}

func (l *loader) set(name string, s setting) {
	if replacement, ok := removedKeys[s.key]; ok {
		l.removedKeys = append(l.removedKeys, RemovedKey{name, s.line, s.key, replacement})
		return
	}
	at := &Error{File: name, Line: s.line, Key: s.key}
	known, ok := l.keys[s.key]
	switch {
	case ok:
		at.Err = known.set(s.value, filepath.Dir(name))
	case l.isSection(s.key):
		if _, table := s.value.(map[string]any); !table {
			at.Err = fmt.Errorf("must be a table, [%s], not %s", s.key, typeName(s.value))
		}
	default:
		at.Err = fmt.Errorf("unknown key; did you mean %s?", l.nearestKey(s.key))
	}
	if at.Err != nil {
		l.errs = append(l.errs, at)
		return
	}
	l.positions[s.key] = at
}

func (l *loader) isSection(name string) bool {
	if hasRemovedKeys(name) {
		return true
	}
	for k := range l.keys {
		if strings.HasPrefix(k, name+".") {
			return true
		}
	}
	return false
}

// addError adds an error about the merged configuration. If a file sets the key, the error names the file and the line.
func (l *loader) addError(mainFile, key string, err error) {
	at := Error{File: mainFile, Key: key, Err: err}
	if o := l.positions[key]; o != nil {
		at.File, at.Line = o.File, o.Line
	}
	l.errs = append(l.errs, &at)
}

// values returns the value of each schema key, indexed by the key's full name.
func values(c *Config, backends []proxiers.Component) map[string]value {
	all := make(map[string]value)
	for _, s := range schema(c, backends) {
		for _, k := range s.keys {
			all[s.name+"."+k.name] = k.value
		}
	}
	return all
}
