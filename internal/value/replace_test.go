package value_test

import (
	"testing"

	"j17/internal/value"
)

// TestMembersAreReplacedInPlace compares Replace and Add with SetMember: what they make, how large it is, and what has been
// frozen.
func TestMembersAreReplacedInPlace(t *testing.T) {
	texts := []string{`0`, `-1`, `9`, `99999`, `-100000`, `0.5`, `12.25`, `999999999999999999`, `-999999999999999999`, `1e3`, `"a\"b"`, `null`, `[1]`, `{"x":"y"}`}
	parsed := func(s string) value.Value {
		v, err := value.ParseString(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, old := range texts {
		for _, text := range texts {
			before := `{"a":true,"n":` + old + `}`
			v := parsed(text)
			sum, small := value.Add(parsed(old), v)
			small = small && parsed(old).Digits() == 0 && v.Digits() == 0 && sum.Digits() == 0
			sides := []struct {
				want value.Value
				ok   bool
				edit func(ed *value.Editor, obj *value.Value, most int) (int, bool)
			}{
				{v, true, func(ed *value.Editor, obj *value.Value, most int) (int, bool) {
					return ed.Replace(obj, "n", &v, v.Size(), most)
				}},
				{sum, small, func(ed *value.Editor, obj *value.Value, most int) (int, bool) {
					return ed.Add(obj, "n", &v, false, most)
				}},
			}
			for _, side := range sides {
				start := parsed(before)
				size := start.Size()
				grown := side.want.Size() - parsed(old).Size()
				obj, ed := start, value.NewEditor()
				if grown > 0 {
					if _, ok := side.edit(ed, &obj, grown-1); ok {
						t.Errorf("%s with %s grows by more than it may", before, text)
					}
				}
				n, ok := side.edit(ed, &obj, grown)
				if ok != side.ok || start.String() != before {
					t.Fatalf("%s with %s: %v; what was there is %s", before, text, ok, start)
				}
				if !ok {
					continue
				}
				want := `{"a":true,"n":` + side.want.String() + `}`
				if got := obj.String(); got != want || n != grown || obj.Size() != len(got) || obj.Size() != size+n {
					t.Errorf("%s with %s is %s of %d bytes, grown by %d", before, text, got, obj.Size(), n)
				}
			}
		}
	}
}

func TestOnlyMembersThatAreThereAreReplaced(t *testing.T) {
	ed, one := value.NewEditor(), value.Int(1)
	for _, obj := range []value.Value{{}, value.NullValue(), value.ArrayValue(one), value.ObjectValue(value.Member{Key: "a", Value: one})} {
		was := obj.String()
		_, replaced := ed.Replace(&obj, "b", &one, 1, 100)
		_, added := ed.Add(&obj, "b", &one, true, 100)
		if replaced || added || obj.String() != was {
			t.Errorf("%s becomes %s", was, obj)
		}
	}
}

// TestMembersOfMembersAreReplacedInPlace compares ReplaceIn with Put.
func TestMembersOfMembersAreReplacedInPlace(t *testing.T) {
	ed, v := value.NewEditor(), value.StringValue("longer")
	start, err := value.ParseString(`{"a":{"b":{"c":1,"d":[2]}},"e":3}`)
	if err != nil {
		t.Fatal(err)
	}
	root, size := start, start.Size()
	steps := []value.Step{{Key: "a"}, {Key: "b"}}
	if _, ok := ed.ReplaceIn(&root, steps, "c", &v, v.Size(), 100); ok {
		t.Error("what the editor does not own is changed")
	}
	root, _ = ed.Put(root, append(steps[:2:2], value.Step{Key: "c"}), value.Int(5), 0)
	if _, ok := ed.ReplaceIn(&root, steps, "c", &v, v.Size(), v.Size()-2); ok {
		t.Error("it grows by more than it may")
	}
	if grown, ok := ed.ReplaceIn(&root, steps, "c", &v, v.Size(), v.Size()-1); !ok || grown != v.Size()-1 {
		t.Error(grown, ok)
	}
	for _, wrong := range [][]value.Step{{{Key: "x"}}, {{Key: "e"}}, {{IsIndex: true}}, {{Key: "a"}, {Key: "b"}, {Key: "d"}}} {
		if _, ok := ed.ReplaceIn(&root, wrong, "c", &v, v.Size(), 100); ok {
			t.Errorf("a member is replaced at %v", wrong)
		}
	}
	want := `{"a":{"b":{"c":"longer","d":[2]}},"e":3}`
	if root.String() != want || root.Size() != len(want) || start.Size() != size || start.String() == want {
		t.Errorf("%s has %d bytes; what was there is %s", root, root.Size(), start)
	}
	ed.Freeze()
	if _, ok := ed.ReplaceIn(&root, steps, "c", &v, v.Size(), 100); ok {
		t.Error("what is frozen is changed")
	}
}
