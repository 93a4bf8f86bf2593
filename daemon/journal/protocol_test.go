package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The journal's socket has a fixed path. A child process in its own mount namespace can have another journal at the
// same path.
const (
	childRole     = "EDGEWAY_TEST_CHILD"
	journalSocket = "/run/systemd/journal/socket"
)

func TestMain(m *testing.M) {
	if os.Getenv(childRole) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func TestLinesReachJournalSocket(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"=1", "JOURNAL_STREAM="+identity(t, write))
	cmd.Stderr = write
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	write.Close()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	stderr, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(stderr); strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, `level=WARN msg="the journal is away"`) {
		t.Errorf("standard error has\n%s", got)
	}
}

// identity returns the value of JOURNAL_STREAM that systemd would set for a process whose standard error is f.
func identity(t *testing.T, f *os.File) string {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

func child() error {
	if IsAvailable() {
		return errors.New("this process has the host's journal")
	}
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		os.MkdirAll(filepath.Dir(journalSocket), 0o755),
	); err != nil {
		return err
	}
	if IsAvailable() {
		return errors.New("a journal without a socket is wanted")
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: journalSocket})
	if err != nil {
		return err
	}
	if !IsAvailable() {
		return errors.New("the journal is not wanted")
	}
	log := slog.New(NewHandler(slog.LevelInfo, slog.NewTextHandler(os.Stderr, nil)))
	for _, detail := range []string{"short", "of\ntwo lines", strings.Repeat("very long ", 100_000)} {
		log.Error("sync failed", "message_id", "439957022047823733a90ea36bbdf8fe", "stage", "nftables", "error", detail)
		fields, err := receive(conn)
		if err != nil {
			return err
		}
		if len(fields["MESSAGE_ID"]) != 32 || fields["STAGE"] != "nftables" || fields["PRIORITY"] != "3" ||
			fields["EDGEWAY_ERROR"] != detail ||
			!strings.HasPrefix(fields["MESSAGE"], "sync failed: stage=nftables error=") ||
			strings.Contains(fields["MESSAGE"], "\n") {
			return fmt.Errorf("the journal got %.1000v", fields)
		}
	}
	conn.Close()
	log.Warn("the journal is away")
	return nil
}

// receive reads a journal entry. The native protocol passes a long entry as a file descriptor.
func receive(conn *net.UnixConn) (map[string]string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	data, oob := make([]byte, 1<<20), make([]byte, 128)
	n, oobn, _, _, err := conn.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, err
	}
	data = data[:n]
	if n == 0 {
		messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			return nil, fmt.Errorf("%d control messages: %w", len(messages), err)
		}
		fds, err := syscall.ParseUnixRights(&messages[0])
		if err != nil {
			return nil, err
		}
		file := os.NewFile(uintptr(fds[0]), "entry")
		defer file.Close()
		if data, err = io.ReadAll(io.NewSectionReader(file, 0, 1<<30)); err != nil {
			return nil, err
		}
	}
	return parse(data)
}

func parse(data []byte) (map[string]string, error) {
	fields := map[string]string{}
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		if name, value, ok := bytes.Cut(line, []byte("=")); ok {
			fields[string(name)] = string(value)
			data = rest
			continue
		}
		if len(rest) < 8 {
			return nil, fmt.Errorf("field %s has no value", line)
		}
		size := binary.LittleEndian.Uint64(rest)
		rest = rest[8:]
		if uint64(len(rest)) <= size {
			return nil, fmt.Errorf("field %s of %d bytes is cut off", line, size)
		}
		fields[string(line)] = string(rest[:size])
		data = rest[size+1:]
	}
	return fields, nil
}
