//go:build !race

package value_test

import (
	"testing"

	"j17/internal/base/value"
)

// TestMembersAreReplacedInPlace compares Replace and Add with SetMember: what they make, how large it is, and what has
// been frozen.
func TestMembersAreReplacedInPlace(t *testing.T) {
	texts := []string{
		`0`, `-1`, `9`, `99999`, `-100000`, `0.5`, `12.25`, `999999999999999999`, `-999999999999999999`, `1e3`,
		`"a\"b"`, `null`, `[1]`, `{"x":"y"}`,
	}
	parsed := func(s string) value.Value {
		v, err := value.ParseString(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, old := range texts {
		for _, text := range texts {
			src := `{"a":true,"n":` + old + `}`
			v := parsed(text)
			sum, small := value.Add(parsed(old), v)
			small = small && parsed(old).Digits() == 0 && v.Digits() == 0 && sum.Digits() == 0
			sides := []struct {
				want value.Value
				ok   bool
				edit func(ed *value.Editor, obj *value.Value, room value.Weight) (value.Weight, bool)
			}{
				{v, true, func(ed *value.Editor, obj *value.Value, room value.Weight) (value.Weight, bool) {
					return ed.Set(obj, "n", &v, v.Weight(), room)
				}},
				{sum, small, func(ed *value.Editor, obj *value.Value, room value.Weight) (value.Weight, bool) {
					return ed.Add(obj, "n", &v, false, room)
				}},
			}
			for _, side := range sides {
				start := parsed(src)
				before := start.Weight()
				grown := side.want.Weight().Minus(parsed(old).Weight())
				obj, ed := start, value.NewEditor()
				for _, less := range []value.Weight{{Bytes: 1}, {Values: 1}} {
					if grown.Fits(grown.Minus(less)) {
						continue // it does not grow
					}
					if _, ok := side.edit(ed, &obj, grown.Minus(less)); ok {
						t.Errorf("%s with %s grows by more than it may", src, text)
					}
				}
				n, ok := side.edit(ed, &obj, grown)
				if ok != side.ok || start.String() != src {
					t.Fatalf("%s with %s: %v; what was there is %s", src, text, ok, start)
				}
				if !ok {
					continue
				}
				want := `{"a":true,"n":` + side.want.String() + `}`
				if got := obj.String(); got != want || n != grown || obj.Size() != len(got) ||
					obj.Weight() != before.Plus(n) {
					t.Errorf("%s with %s is %s of %v, grown by %v", src, text, got, obj.Weight(), n)
				}
			}
		}
	}
}

func TestOnlyMembersThatAreThereAreAddedTo(t *testing.T) {
	ed, one := value.NewEditor(), value.Int(1)
	for _, obj := range []value.Value{{}, value.NullValue(), value.ArrayValue(one), value.ObjectValue(value.Member{
		Key: "a", Value: one,
	})} {
		was := obj.String()
		if _, ok := ed.Add(&obj, "b", &one, true, value.Weight{Bytes: 100, Values: 100}); ok || obj.String() != was {
			t.Errorf("%s becomes %s", was, obj)
		}
		if _, ok := ed.Set(&obj, "b", &one, one.Weight(), value.Weight{
			Bytes: 100, Values: 100,
		}); ok != (obj.Kind() == value.Object) || !ok && obj.String() != was {
			t.Errorf("%s becomes %s", was, obj)
		}
	}
}

// TestMembersAreAdded sets members that are not there, in objects of the editor's own and of others.
func TestMembersAreAdded(t *testing.T) {
	for _, before := range []string{`{}`, `{"a":1}`, `{"a\n":[{}]}`} {
		start, err := value.ParseString(before)
		if err != nil {
			t.Fatal(err)
		}
		obj, ed := start, value.NewEditor()
		for _, key := range []string{"b", "\"\u00fc\x01", "c"} {
			v := value.StringValue("v")
			was := obj.String()
			grown := len(value.ObjectValue(append(obj.Members()[:obj.Len():obj.Len()], value.Member{
				Key: key, Value: v,
			})...).String()) - len(was)
			for _, room := range []value.Weight{{Bytes: grown - 1, Values: 1}, {Bytes: grown}} {
				if _, ok := ed.Set(&obj, key, &v, v.Weight(), room); ok || obj.String() != was {
					t.Errorf("%s grows by more than it may", was)
				}
			}
			room := value.Weight{Bytes: grown, Values: 1}
			if n, ok := ed.Set(&obj, key, &v, v.Weight(), room); !ok || n != room ||
				obj.Weight() != (value.Weight{Bytes: len(was) + grown, Values: count(obj)}) {
				t.Errorf("%s becomes %s of %v, grown by %v", was, obj, obj.Weight(), n)
			}
		}
		if start.String() != before || start.Size() != len(before) {
			t.Errorf("%s became %s", before, start)
		}
	}
}

// TestWay changes what stands at the end of a way in place, and compares with Put.
func TestWay(t *testing.T) {
	ed := value.NewEditor()
	start, err := value.ParseString(`{"a":{"b":{"c":1,"d":[2]}},"e":3}`)
	if err != nil {
		t.Fatal(err)
	}
	root, size := start, start.Size()
	steps := []value.Step{{Key: "a"}, {Key: "b"}}
	if _, ok := ed.Way(&root, steps); ok {
		t.Error("there is a way through what the editor does not own")
	}
	root, _ = ed.Put(root, append(steps[:2:2], value.Step{Key: "c"}), value.Int(5), value.Weight{})
	for _, wrong := range [][]value.Step{
		{{Key: "x"}},
		{{Key: "e"}, {Key: "x"}},
		{{IsIndex: true}},
		{{Key: "a"}, {Key: "b"}, {Key: "d"}, {Key: "e"}},
		make([]value.Step, 5),
	} {
		if _, ok := ed.Way(&root, wrong); ok {
			t.Errorf("there is a way along %v", wrong)
		}
	}
	w, ok := ed.Way(&root, append(steps[:2:2], value.Step{Key: "d"}))
	if !ok {
		t.Fatal("there is no way")
	}
	*w.At = ed.Append(*w.At, value.StringValue("longer"))
	w.Grow(value.Weight{Bytes: len(`,"longer"`), Values: 1})
	want := `{"a":{"b":{"c":5,"d":[2,"longer"]}},"e":3}`
	if root.String() != want || root.Size() != len(want) || start.Size() != size || start.String() == want {
		t.Errorf("%s has %d bytes; what was there is %s", root, root.Size(), start)
	}
	ed.Freeze()
	if _, ok := ed.Way(&root, steps); ok {
		t.Error("there is a way through what is frozen")
	}
}

// TestParsedContainersKnowTheirSize compares the sizes that a parser finds on its way with those of what is written.
func TestParsedContainersKnowTheirSize(t *testing.T) {
	for _, src := range []string{
		`{}`, `[]`, ` [ ] `, "{\n}", `{"a":1}`, `{ "a" : [ 1 , 2.50, {"b" : null } ] , "c" : "x" }`, `["\u0041\/\n\u00fc\ud83d\ude00"]`, `{"\u006b\"":"\\"}`, `[1e5,-0,0.10,123456789012345678901]`,
		`[["a very long string without anything","and another one \u0001"],true,false]`,
	} {
		v, err := value.ParseString(src)
		if err != nil {
			t.Fatal(src, err)
		}
		sized(t, v)
	}
}

// sized checks the sizes of a value that was parsed, which cost nothing.
func sized(t *testing.T, v value.Value) {
	t.Helper()
	w, work := v.Weigh()
	if want := (value.Weight{Bytes: len(v.String()), Values: count(v)}); w != want ||
		work != 0 && v.Kind() != value.String {
		t.Errorf("%s has %v and says %v after %d visits", v, want, w, work)
	}
	for _, elem := range v.Elems() {
		sized(t, elem)
	}
	for _, m := range v.Members() {
		sized(t, m.Value)
	}
}

// count returns the number of values in v, itself included.
func count(v value.Value) int {
	n := 1
	for _, elem := range v.Elems() {
		n += count(elem)
	}
	for _, m := range v.Members() {
		n += count(m.Value)
	}
	return n
}
