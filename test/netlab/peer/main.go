// Command peer is one end of a connection in a lab made by a shell script: it serves its name, or it
// dials and prints what came back. scripts/quickstart runs it inside network namespaces.
//
//	peer serve NAME NETWORK ADDRESS [NETWORK ADDRESS ...]   answers "NAME PEER-ADDRESS" to each connection or datagram
//	peer dial NETWORK ADDRESS [SOURCE-IP]                    prints the answer; exit code 1 when there is none
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const timeout = time.Second

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
		return dial(args[1], args[2], source)
	}
	return errors.New("usage: peer serve NAME NETWORK ADDRESS ... | peer dial NETWORK ADDRESS [SOURCE-IP]")
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

func dial(network, address, source string) error {
	d := net.Dialer{Timeout: timeout}
	if source != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		if strings.HasPrefix(network, "udp") {
			d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
		}
	}
	conn, err := d.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if strings.HasPrefix(network, "udp") {
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
		buf := make([]byte, 1500)
		n, err := conn.Read(buf)
		_, _ = os.Stdout.Write(buf[:n])
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}
