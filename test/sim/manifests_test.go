package sim

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// filesNamespace is the namespace of the Services in manifests. The API server has no Service in filesNamespace.
const filesNamespace = "files"

// manifests is a directory with two manifests. The field services holds the intended Services, even while a fault has
// damaged a file or hidden the directory.
type manifests struct {
	dir      string
	host     *host
	services [2][]*service // indexed by file; the first file holds the permanent Services
}

func (m *manifests) path(i int) string {
	return filepath.Join(m.dir, []string{"a.yaml", "b.yaml"}[i])
}

// contents returns the contents of a file: a YAML document for each object, followed by the document end marker. The
// documents are JSON, because JSON is valid YAML.
func (m *manifests) contents(i int) []byte {
	var out bytes.Buffer
	for _, s := range m.services[i] {
		for _, o := range []any{s.spec(filesNamespace), s.slice(filesNamespace)} {
			out.WriteString("---\n")
			out.Write(encode(o))
			out.WriteString("\n")
		}
	}
	if len(m.services[i]) == 0 {
		out.WriteString("# none\n")
	}
	out.WriteString("...\n")
	return out.Bytes()
}

// write renames a new file over the old file if replace is true, and otherwise overwrites the old file in place, as
// some editors do.
func (m *manifests) write(i int, data []byte, replace bool) {
	path := m.path(i)
	if !replace {
		must(os.WriteFile(path, data, 0o600))
		m.host.notifyWatchers(path, fsnotify.Write)
		return
	}
	must(os.WriteFile(path+".new", data, 0o600))
	must(os.Rename(path+".new", path))
	m.host.notifyWatchers(path, fsnotify.Create)
}

func (m *manifests) save(i int, replace bool) { m.write(i, m.contents(i), replace) }

// damage breaks a file. The argument way selects the kind of damage.
func (m *manifests) damage(i, way int, r *rand.Rand) string {
	whole := m.contents(i)
	switch way % 3 {
	case 0:
		m.write(i, []byte("kind: [Service\n"), true)
		return "is no YAML"
	case 1:
		m.write(i, nil, false)
		return "is empty"
	}
	m.write(i, whole[:r.IntN(len(whole))], false)
	return "is cut"
}

// hide renames the directory, as if its file system were not mounted.
func (m *manifests) hide() {
	must(os.Rename(m.dir, m.dir+".away"))
	must(os.Mkdir(m.dir, 0o700))
	m.host.notifyWatchers(m.dir, fsnotify.Remove)
}

func (m *manifests) show() {
	must(os.Remove(m.dir))
	must(os.Rename(m.dir+".away", m.dir))
	m.host.notifyWatchers(m.dir, fsnotify.Create)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
