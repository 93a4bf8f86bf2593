package journal

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"edgeway/daemon/text"
)

// messageID is the key of the attribute that holds an identifier from package messageid.
const messageID = "message_id"

// attr is an attribute with its full key and its value as text.
type attr struct{ key, value string }

func flatten(out []attr, group string, a slog.Attr) []attr {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "_"
		}
		for _, member := range value.Group() {
			out = flatten(out, group, member)
		}
		return out
	}
	if a.Key == "" {
		return out
	}
	return append(out, attr{group + a.Key, text.Clean(textOf(value))}) // journalctl -x does not escape values
}

func textOf(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339)
	case slog.KindAny:
		return fmt.Sprint(v.Any())
	}
	return v.String()
}

// prefix separates Edgeway's fields from the journal's own fields. An attribute "unit", for example, must not become
// the field UNIT, because systemctl status uses that field to assign a line to a unit.
const prefix = "EDGEWAY_"

// fieldsOf converts attributes to journal fields, indexed by name. A field name consists of letters A to Z, digits and
// underscores. If two attributes have the same name, the later attribute wins. The names MESSAGE_ID, SERVICE, BACKEND
// and STAGE have no prefix, because users filter by these names.
func fieldsOf(attrs []attr) map[string]string {
	fields := make(map[string]string, len(attrs)+4)
	for _, a := range attrs {
		if name := service(a); name != "" {
			fields["SERVICE"] = name
		}
		switch a.key {
		case messageID, "backend", "stage":
			fields[strings.ToUpper(a.key)] = a.value
		default:
			fields[prefix+fieldName(a.key)] = a.value
		}
	}
	return fields
}

// service returns the "namespace/name" of the Service that an attribute names, or "" if the attribute names no Service.
// The attribute's value is a Service name, a plan.ServicePortName, or a source.Key.
func service(a attr) string {
	name := a.value
	switch a.key {
	case "service", "service_port":
	case "object":
		var isService bool
		if name, isService = strings.CutPrefix(name, "Service "); !isService {
			return ""
		}
	default:
		return ""
	}
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		return ""
	}
	if end := strings.IndexAny(name, ":/"); end >= 0 {
		name = name[:end]
	}
	return namespace + "/" + name
}

func fieldName(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

// messageText returns the message, followed by its attributes in the format of slog's text handler.
func messageText(message string, attrs []attr) string {
	var b strings.Builder
	b.WriteString(message)
	separator := ": "
	for _, a := range attrs {
		if a.key == messageID {
			continue
		}
		b.WriteString(separator)
		separator = " "
		b.WriteString(a.key)
		b.WriteByte('=')
		if needsQuotes(a.value) {
			b.WriteString(strconv.Quote(a.value))
		} else {
			b.WriteString(a.value)
		}
	}
	return b.String()
}

func needsQuotes(s string) bool {
	return s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return r == ' ' || r == '"' || r == '=' || !unicode.IsPrint(r)
	})
}
