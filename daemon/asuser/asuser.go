// Package asuser reads files with the rights of another user, as the kernel sees them: access lists, links and mounts
// included.
package asuser

import (
	"fmt"
	"os/user"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

// ID is a user with its groups.
type ID struct {
	Name     string
	UID, GID int
	Groups   []int // beside GID
}

// Lookup finds a user of this host.
func Lookup(name string) (ID, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return ID{}, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return ID{}, fmt.Errorf("groups of %s: %w", name, err)
	}
	id := ID{Name: name}
	if id.UID, err = strconv.Atoi(u.Uid); err != nil {
		return ID{}, fmt.Errorf("user %s: %w", name, err)
	}
	if id.GID, err = strconv.Atoi(u.Gid); err != nil {
		return ID{}, fmt.Errorf("group of %s: %w", name, err)
	}
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil && n != id.GID {
			id.Groups = append(id.Groups, n)
		}
	}
	return id, nil
}

// Do calls f on a thread whose rights to files are the user's. f may start no goroutine that reads files. Only root
// can do it.
func (id ID) Do(f func()) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and what was changed with it.
		runtime.LockOSThread()
		err := id.assume()
		if err == nil {
			err = contain.Call(func() error {
				f()
				return nil
			})
		}
		done <- err
	}()
	err := <-done
	contain.Rethrow(err)
	return err
}

// assume changes this thread alone, in contrast to the functions of package syscall. A user other than root has no
// capability to read everything (capabilities(7)).
func (id ID) assume() error {
	if err := unix.Setgroups(id.Groups); err != nil {
		return fmt.Errorf("groups of %s: %w", id.Name, err)
	}
	for _, set := range []struct {
		call func(int) (int, error)
		to   int
	}{{unix.SetfsgidRetGid, id.GID}, {unix.SetfsuidRetUid, id.UID}} {
		if _, err := set.call(set.to); err != nil {
			return fmt.Errorf("rights of %s: %w", id.Name, err)
		}
		// A refusal is no error (setfsuid(2)); what is no user is refused always, and so asks.
		if now, _ := set.call(-1); now != set.to {
			return fmt.Errorf("rights of %s: %w", id.Name, unix.EPERM)
		}
	}
	return nil
}
