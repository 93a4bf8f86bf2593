package nftables

import "edgeway/proxiers/internal/nfnetlink"

// attrKeyEnd is an attribute number of the kernel's nf_tables.h that golang.org/x/sys/unix lacks.
const attrKeyEnd = 10

// nfConn reads what our tables hold.
type nfConn struct{ *nfnetlink.Conn }

func dialNetfilter() (*nfConn, error) {
	c, err := nfnetlink.Dial()
	if err != nil {
		return nil, err
	}
	return &nfConn{c}, nil
}
