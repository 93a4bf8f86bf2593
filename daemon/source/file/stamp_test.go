package file

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestOnlyChangedFilesAreRead(t *testing.T) {
	f := newManifestDir(t)
	f.src.timestampMargin = 0
	f.write("a.yaml", called("a"))
	f.read()
	f.expect("Service default/a")
	a := f.src.manifests[f.path("a.yaml")]
	a.sum[0]++ // reading the file again would compute a different checksum
	f.write("b.yaml", called("b"))
	f.read()
	f.expect("Service default/a, Service default/b")
	if f.src.manifests[f.path("a.yaml")] != a {
		t.Error("a file that nobody wrote to was read again")
	}

	// The new version of the file has the same size and modification time as the old version.
	time.Sleep(50 * time.Millisecond) // before Linux 6.13, the clock of a file system advances every 1 to 10 ms
	info, err := os.Stat(f.path("b.yaml"))
	f.must(err)
	f.write("b.yaml", called("c"))
	f.must(os.Chtimes(f.path("b.yaml"), info.ModTime(), info.ModTime()))
	f.read()
	f.expect("Service default/a, Service default/c")

	f.must(os.Remove(f.path("a.yaml")))
	f.read()
	f.expect("Service default/c")
	f.write("a.yaml", called("a"))
	f.read()
	f.expect("Service default/a, Service default/c")
}

// Edgeway rereads a file that was written recently, because the file system's clock may not advance between two writes.
func TestRecentFilesAreReadAgain(t *testing.T) {
	f := newManifestDir(t)
	f.src.timestampMargin = time.Hour // a busy host may take longer than the default between the write and a read
	f.write("a.yaml", called("a"))
	f.read()
	a := f.src.manifests[f.path("a.yaml")]
	a.sum[0]++
	f.read()
	if f.src.manifests[f.path("a.yaml")] == a {
		t.Error("a file that was written just now was not read again")
	}
}

func BenchmarkOneOfManyFiles(b *testing.B) {
	for _, files := range []int{10, 1000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			f := newManifestDir(b)
			f.src.timestampMargin = 0
			write := func(file, version int) {
				var text strings.Builder
				for i := range 100 {
					text.WriteString(called(fmt.Sprintf("s%d-%d-%d", file, i, version)) + "---\n")
				}
				f.write(fmt.Sprintf("%d.yaml", file), text.String())
			}
			for i := range files {
				write(i, 0)
			}
			f.read()
			for b.Loop() {
				write(0, int(time.Now().UnixNano()))
				f.read()
			}
		})
	}
}
