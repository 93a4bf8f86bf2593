// Command peer is one end of a connection in a lab that a shell script creates. The command either runs a server that
// sends its name, or connects to a server and prints the response. The script scripts/quickstart runs the command
// inside network namespaces.
//
//	peer serve NAME NETWORK ADDRESS [NETWORK ADDRESS ...]   sends "NAME PEER-ADDRESS" to each connection or datagram
//	peer dial NETWORK ADDRESS [SOURCE-IP]                    prints the response; exits with code 1 if there is none
//	peer wait NETWORK ADDRESS SECONDS                        dials until a server responds
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

const (
	timeout = time.Second
	// waitTimeout is the timeout of each attempt of "peer wait". The timeout is short, because TCP retransmits a
	// dropped packet only after a second.
	waitTimeout = 100 * time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 4 && len(args)%2 == 0 && args[0] == "serve":
		return serve(args[1], args[2:])
	case len(args) >= 3 && args[0] == "dial":
		source := ""
		if len(args) > 3 {
			source = args[3]
		}
		answer, err := dial(args[1], args[2], source, timeout)
		fmt.Print(answer)
		return err
	case len(args) == 4 && args[0] == "wait":
		return wait(args[1], args[2], args[3])
	}
	return errors.New("usage: peer serve NAME NETWORK ADDRESS ... | peer dial NETWORK ADDRESS [SOURCE-IP] | peer wait NETWORK ADDRESS SECONDS")
}

func wait(network, address, seconds string) error {
	limit, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		_, err := dial(network, address, "", waitTimeout)
		if err == nil {
			return nil
		}
		if time.Since(start) > limit {
			return err
		}
	}
}

func serve(name string, listeners []string) error {
	failed := make(chan error)
	for i := 0; i < len(listeners); i += 2 {
		network, address := listeners[i], listeners[i+1]
		go func() {
			if strings.HasPrefix(network, "udp") {
				failed <- serveDatagrams(name, network, address)
			} else {
				failed <- serveStreams(name, network, address)
			}
		}()
	}
	return <-failed
}

func serveStreams(name, network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(conn, "%s %s\n", name, conn.RemoteAddr())
		_ = conn.Close()
	}
}

func serveDatagrams(name, network, address string) error {
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		_, peer, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		_, _ = conn.WriteTo(fmt.Appendf(nil, "%s %s\n", name, peer), peer)
	}
}

func dial(network, address, source string, timeout time.Duration) (string, error) {
	d := net.Dialer{Timeout: timeout}
	datagrams := strings.HasPrefix(network, "udp")
	switch {
	case source != "" && datagrams:
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
	case source != "":
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	conn, err := d.Dial(network, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if datagrams {
		if _, err := conn.Write([]byte("?")); err != nil {
			return "", err
		}
	}
	return bufio.NewReader(conn).ReadString('\n')
}
