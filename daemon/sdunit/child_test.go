package sdunit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// childRole is the environment variable that makes a child process of the test act as the daemon. The child process
// receives descriptors as if from systemd.
const childRole = "EDGEWAY_TEST_CHILD"

func TestMain(m *testing.M) {
	roles := map[string]func() error{"adopt": childAdopts}
	if role := roles[os.Getenv(childRole)]; role != nil {
		if err := role(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// startChild starts the test binary and passes it descriptors, numbered from 3. A shell sets LISTEN_PID, because
// startChild does not know the process ID before the binary runs.
func startChild(t *testing.T, role string, names string, files ...*os.File) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, "LISTEN_FDNAMES="+names,
		fmt.Sprintf("LISTEN_FDS=%d", len(files)))
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func expect(t *testing.T, out *bufio.Scanner, prefix string) string {
	t.Helper()
	for out.Scan() {
		if rest, ok := strings.CutPrefix(out.Text(), prefix); ok {
			return rest
		}
		if strings.HasPrefix(out.Text(), "error:") {
			t.Fatal(out.Text())
		}
	}
	t.Fatalf("the child ended before %q", prefix)
	return ""
}

func TestPassedDescriptorsAreAdoptedAndNotInherited(t *testing.T) {
	unit, unitCopy, unitAddr := passedSocket(t, "")
	stored, storedCopy, storedAddr := passedSocket(t, "")
	inodes := fmt.Sprintf("[%d] [%d]", inodeOf(t, unitCopy), inodeOf(t, storedCopy))
	cmd, out := startChild(t, "adopt", "x.socket:"+storeName(storedAddr), unit, stored)
	if got, want := expect(t, out, "unit: "), unitAddr.String()+" x.socket"; got != want {
		t.Errorf("adopted of the unit: %s, want %s", got, want)
	}
	if got, want := expect(t, out, "stored: "), storedAddr.String()+" "+storeName(storedAddr); got != want {
		t.Errorf("adopted of the store: %s, want %s", got, want)
	}
	for range 2 {
		if link := expect(t, out, "own: "); !strings.Contains(inodes, strings.TrimPrefix(link, "socket:")) {
			t.Errorf("the listener of the child is %s, not one of %s", link, inodes)
		}
	}
	if links := expect(t, out, "grandchild: "); strings.Contains(links, "socket:") ||
		!strings.Contains(links, "pipe:") {
		t.Errorf("a program that the daemon starts has these descriptors: %s", links)
	}
	if env := expect(t, out, "environment: "); env != "" {
		t.Errorf("a program that the daemon starts sees %s", env)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func childAdopts() error {
	logger, log := newLog()
	s := NewSockets(NewManager(logger), PassedFiles(), logger)
	for _, addr := range s.Unused() {
		if sock := s.open[addr]; sock.unitName != "" {
			fmt.Println("unit:", addr, sock.unitName)
		}
	}
	for _, addr := range s.Unused() {
		if sock := s.open[addr]; sock.storedName != "" {
			fmt.Println("stored:", addr, sock.storedName)
		}
	}
	for _, addr := range s.Unused() {
		listener, err := s.Listen(addr)
		if err != nil {
			return err
		}
		raw, err := listener.SyscallConn()
		if err != nil {
			return err
		}
		_ = raw.Control(func(fd uintptr) {
			link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			fmt.Println("own:", link)
		})
	}
	links, err := exec.Command("sh", "-c", "readlink /proc/self/fd/* | tr '\\n' ' '").Output()
	if err != nil && len(links) == 0 {
		return err
	}
	fmt.Println("grandchild:", string(links))
	env, _ := exec.Command("sh", "-c", "env | grep ^LISTEN_ | tr '\\n' ' '").Output()
	fmt.Println("environment:", string(env))
	if log.String() != "" {
		return errors.New(log.String())
	}
	return nil
}
