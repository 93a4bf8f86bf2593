package files

import (
	"fmt"
	"os/user"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

// User is a user with its groups.
type User struct {
	Name     string
	UID, GID int
	Groups   []int // besides GID
}

// LookupUser finds a user of this host.
func LookupUser(name string) (User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return User{}, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return User{}, fmt.Errorf("groups of %s: %w", name, err)
	}
	id := User{Name: name}
	if id.UID, err = strconv.Atoi(u.Uid); err != nil {
		return User{}, fmt.Errorf("user %s: %w", name, err)
	}
	if id.GID, err = strconv.Atoi(u.Gid); err != nil {
		return User{}, fmt.Errorf("group of %s: %w", name, err)
	}
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil && n != id.GID {
			id.Groups = append(id.Groups, n)
		}
	}
	return id, nil
}

// Do calls f on a thread that has the user's rights to files, access lists, links and mounts included. f must not start
// a goroutine that reads files. Only root can do it.
func (id User) Do(f func()) error {
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
func (id User) assume() error {
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
