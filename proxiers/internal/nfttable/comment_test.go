package nfttable

import (
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

// A ServicePort's name cannot break out of a comment in nft's syntax, and no comment is longer than maxComment.
func TestCommentOf(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct {
		name plan.ServicePortName
		want string
	}{
		{plan.ServicePortName{Namespace: "default", Name: "web-1.x"}, "default/web-1.x"},
		{plan.ServicePortName{Namespace: "Default", Name: "web", Port: "https"}, "Default/web:https"},
		{plan.ServicePortName{Namespace: long, Name: long, Port: "https"}, long + "/" + long + ":"},
		{plan.ServicePortName{Namespace: "a\"b\\;{", Name: "c\nd\xc3\xa9"}, "a_b___/c_d__"},
	} {
		got := commentOf(c.name)
		if text := string(got.appendText(nil)); text != ` comment "`+c.want+`"` {
			t.Errorf("%v: %q, want %q", c.name, text, c.want)
		}
		if int(got[1]) != len(c.want)+1 || len(got) > 2+maxComment {
			t.Errorf("%v: %d bytes in %q", c.name, got[1], got)
		}
	}
}
