package nfttable

import "edgeway/proxiers/plan"

// comment is an element's, as nft has the kernel keep it: user data of one attribute, less the zero at its end.
type comment string

const (
	// udataComment is the type of the attribute: libnftnl's NFTNL_UDATA_SET_ELEM_COMMENT.
	udataComment = 0
	// maxComment is what nft takes (1.0.6), which shows one that is longer, too.
	maxComment = 128
)

// commentOf makes one of the name of a ServicePort: "namespace/name:port". What is too long is cut, as a namespace and
// a name of 63 letters each leave no room for the port, which most keys have. Kubernetes allows no other letters in
// names.
func commentOf(n plan.ServicePortName) comment {
	b := append(make([]byte, 0, 2+maxComment), udataComment, 0)
	b = append(append(append(b, n.Namespace...), '/'), n.Name...)
	if n.Port != "" {
		b = append(append(b, ':'), n.Port...)
	}
	b = b[:min(len(b), 2+maxComment)]
	for i, c := range b[2:] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '-' || c > ':') { // from - to : are . and / and the digits
			b[2+i] = '_'
		}
	}
	b[1] = byte(len(b) - 2 + 1)
	return comment(b)
}

// appendText adds it in nft's syntax, if there is one.
func (c comment) appendText(b []byte) []byte {
	if c == "" {
		return b
	}
	b = append(b, ` comment "`...)
	b = append(b, c[2:]...)
	return append(b, '"')
}
