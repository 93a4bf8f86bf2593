package api

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/proxiers/contain"
)

// layout has the fields of a struct by their numbers, which never change.
type layout []field

// field is one that is read: its second word of the tag protobuf is its number.
type field struct {
	read  bool
	place int    // in the struct
	of    layout // what it, or each of its list, has; nil: it is no struct, or one that reads itself
}

// layoutOf gives the layout of the struct that is in a list or behind a pointer, or nil. Structs do not hold themselves.
func layoutOf(t reflect.Type) layout {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.ListMeta]() {
		return nil
	}
	out := layout{}
	for i := range t.NumField() {
		f := t.Field(i)
		words := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(words) < 2 || t == reflect.TypeFor[metav1.ObjectMeta]() && !inMetadata(f.Name) {
			continue
		}
		number, err := strconv.Atoi(words[1])
		if err != nil {
			panic(err) // a tag of this package, or of apimachinery
		}
		for len(out) <= number {
			out = append(out, field{})
		}
		out[number] = field{true, i, layoutOf(f.Type)}
	}
	return out
}

// layouts are of what a server answers with, and of the entries of maps.
var layouts = layoutsOf(
	Service{}, EndpointSlice{}, Node{}, ServiceCIDR{}, ServiceList{}, EndpointSliceList{}, NodeList{}, ServiceCIDRList{}, entry{},
)

func layoutsOf(messages ...any) map[reflect.Type]layout {
	out := map[reflect.Type]layout{}
	for _, m := range messages {
		out[reflect.TypeOf(m)] = layoutOf(reflect.TypeOf(m))
	}
	return out
}

// unmarshal returns a panic as an error: client-go (v0.37.2) decodes in goroutines of its own.
func unmarshal(data []byte, to any) error {
	v := reflect.ValueOf(to).Elem()
	return contain.Call(func() error { return message(data, v, layouts[v.Type()]) })
}

// inMetadata: the fields of metadata that are read.
func inMetadata(field string) bool {
	return slices.Contains([]string{
		"Name", "Namespace", "UID", "ResourceVersion", "CreationTimestamp", "DeletionTimestamp", "Labels", "Annotations",
	}, field)
}

// hasMeaning: the labels and annotations that are read.
func hasMeaning(key string) bool {
	return slices.Contains([]string{
		LabelServiceName, LabelServiceProxyName, LabelHeadless, LabelZone,
		AnnotationLastChange, AnnotationTrafficHint, AnnotationScheduler, AnnotationWeights, metav1.InitialEventsAnnotationKey,
	}, key)
}

// message reads protobuf into a struct, and passes over what is not read.
func message(data []byte, to reflect.Value, of layout) error {
	for len(data) > 0 {
		number, kind, start := protowire.ConsumeTag(data)
		if start < 0 {
			return protowire.ParseError(start)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[start:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		end := start + size
		if int(number) < len(of) && of[number].read {
			if err := value(kind, data[start:end], to.Field(of[number].place), of[number].of); err != nil {
				return err
			}
		}
		data = data[end:]
	}
	return nil
}

var errKind = errors.New("a field of protobuf is of another kind than it should be")

// value reads the value of a field, which is one more of a list.
func value(kind protowire.Type, data []byte, to reflect.Value, of layout) error {
	if to.Kind() == reflect.Slice && to.Type().Elem().Kind() != reflect.Uint8 {
		to.Grow(1)
		to.SetLen(to.Len() + 1)
		to = to.Index(to.Len() - 1)
	}
	if to.Kind() == reflect.Pointer {
		if to.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
		}
		to = to.Elem()
	}
	switch to.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64:
		if kind != protowire.VarintType {
			return errKind
		}
		n, _ := protowire.ConsumeVarint(data)
		if to.Kind() == reflect.Bool {
			to.SetBool(n != 0)
		} else {
			to.SetInt(int64(n))
		}
		return nil
	}
	if kind != protowire.BytesType {
		return errKind
	}
	content, _ := protowire.ConsumeBytes(data)
	switch to.Kind() {
	case reflect.String:
		to.SetString(string(content))
		return nil
	case reflect.Slice:
		to.SetBytes(content)
		return nil
	case reflect.Map:
		return label(content, to)
	}
	if of != nil {
		return message(content, to, of)
	}
	return to.Addr().Interface().(interface{ Unmarshal(data []byte) error }).Unmarshal(content)
}

// entry is one of a map. What it has is part of the message.
type entry struct {
	Key   []byte `protobuf:"bytes,1"`
	Value []byte `protobuf:"bytes,2"`
}

// label adds an entry to a map of labels or annotations.
func label(data []byte, to reflect.Value) error {
	var e entry
	if err := unmarshal(data, &e); err != nil || !hasMeaning(string(e.Key)) {
		return err
	}
	labels := to.Addr().Interface().(*map[string]string)
	if *labels == nil {
		*labels = make(map[string]string, 1)
	}
	(*labels)[string(e.Key)] = string(e.Value)
	return nil
}
