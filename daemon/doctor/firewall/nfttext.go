package firewall

import (
	"encoding/json"
	"fmt"
	"strings"
)

// statementText is nearly what nft would print. It is for people, who find the rule by it.
func statementText(what string, v any) string {
	o, _ := v.(object)
	switch what {
	case "match":
		op := text(o, "op") + " "
		if op == "== " || op == "in " {
			op = ""
		}
		return expressionText(o["left"]) + " " + op + expressionText(o["right"])
	case "jump", "goto":
		return what + " " + text(o, "target")
	case "vmap":
		return expressionText(o["key"]) + " vmap " + expressionText(o["data"])
	case "reject":
		return what
	}
	if v == nil || what == "counter" || what == "log" || what == "limit" {
		return what
	}
	return what + " " + expressionText(v)
}

func expressionText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case []any:
		return listText(v, ",")
	case object:
		if len(v) == 1 {
			for what, of := range v {
				return objectText(what, of)
			}
		}
	}
	raw, _ := json.Marshal(v) // of what JSON was read: it cannot fail
	return shorten(string(raw))
}

func objectText(what string, v any) string {
	o, _ := v.(object)
	switch what {
	case "payload":
		return text(o, "protocol") + " " + text(o, "field")
	case "meta":
		key := text(o, "key")
		if strings.Contains(key, "if") || key == "mark" {
			return strings.Replace(key, "mark", "meta mark", 1)
		}
		return "meta " + key
	case "ct":
		if dir := text(o, "dir"); dir != "" {
			return "ct " + dir + " " + text(o, "key")
		}
		return "ct " + text(o, "key")
	case "prefix":
		return fmt.Sprintf("%s/%v", text(o, "addr"), o["len"])
	case "elem":
		return expressionText(o["val"])
	}
	list, _ := v.([]any)
	switch what {
	case "set":
		return "{ " + listText(list, ", ") + " }"
	case "range":
		return listText(list, "-")
	case "concat":
		return listText(list, " . ")
	case "&", "|":
		return "(" + listText(list, " "+what+" ") + ")"
	}
	if v == nil {
		return what
	}
	return what + " " + expressionText(v)
}

// listText stops where nobody reads on.
func listText(list []any, between string) string {
	var out strings.Builder
	for i, v := range list {
		if i > 0 {
			out.WriteString(between)
		}
		if out.Len() > maxRuleText {
			return out.String() + "…"
		}
		if pair, ok := v.([]any); ok && len(pair) == 2 && between == ", " { // of a map
			out.WriteString(expressionText(pair[0]) + " : " + expressionText(pair[1]))
			continue
		}
		out.WriteString(expressionText(v))
	}
	return out.String()
}
