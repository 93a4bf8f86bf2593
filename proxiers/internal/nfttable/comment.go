package nfttable

import "edgeway/proxiers/plan"

// comment is an element's comment in the format that nft stores in the kernel: a user data attribute without the
// terminating null byte.
type comment string

const (
	// udataComment is the attribute type for a comment (NFTNL_UDATA_SET_ELEM_COMMENT in libnftnl).
	udataComment = 0
	// maxComment is the maximum length in bytes of a comment that nft (1.0.6) accepts. nft also displays longer
	// comments.
	maxComment = 128
)

// commentOf returns a ServicePort's name as a comment, "namespace/name:port", and truncates a long name. If the
// namespace and the name have 63 letters each, there is no space for the port, but the keys of most elements contain
// the port. commentOf replaces characters that Kubernetes does not allow in names with '_'.
func commentOf(n plan.ServicePortName) comment {
	b := append(make([]byte, 0, 2+maxComment), udataComment, 0)
	b = append(append(append(b, n.Namespace...), '/'), n.Name...)
	if n.Port != "" {
		b = append(append(b, ':'), n.Port...)
	}
	b = b[:min(len(b), 2+maxComment)]
	for i, c := range b[2:] {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '-' || c > ':') { // '-' to ':' includes ., / and digits
			b[2+i] = '_'
		}
	}
	b[1] = byte(len(b) - 2 + 1)
	return comment(b)
}

// appendText appends a non-empty comment in nft's syntax.
func (c comment) appendText(b []byte) []byte {
	if c == "" {
		return b
	}
	b = append(b, ` comment "`...)
	b = append(b, c[2:]...)
	return append(b, '"')
}
