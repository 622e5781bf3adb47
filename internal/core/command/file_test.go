//go:build !race

package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/core/command"
)

func TestSplit(t *testing.T) {
	for _, tc := range []struct{ name, src, want string }{
		{"nothing", " \n\n", ""},
		{"lines", "{\"a\":1}\r\n\n  {\"b\":2}", `1@0:{"a":1} 2@12:{"b":2}`},
		{"lines are not looked into", "x\n{", `1@0:x 2@2:{`},
		{"array", "\n [ {\"a\": 1},\n 2 ]", `1@4:{"a": 1} 2@15:2`},
		{"empty array", "[]", ""},
		{"a byte order mark", "\uFEFF{}\n{}", "1@3:{} 2@6:{}"},
		{"a byte order mark and an array", "\uFEFF [{}]", "1@5:{}"},
		{"what an export ends with", "{\"a\":1}\n{\"checkpoint\":\"x\",\"vkey\":\"y\"}\n\n", `1@0:{"a":1}`},
		{"what an export ends with, written by another program", "{\"a\":1}\n{ \"checkpoint\": \"x\", \"vkey\": \"y\" }\n", `1@0:{"a":1}`},
		{"what looks like it", `{"checkpoint":"x"}` + "\n" + `{"checkpoint":"x","vkey":"y","z":1}`, `1@0:{"checkpoint":"x"} 2@19:{"checkpoint":"x","vkey":"y","z":1}`},
		{"what a document ends with", `{"ok":true,"events":[{}],"checkpoint":"x","vkey":"y"}`, "1@21:{}"},
		{"more in a document", "{\"events\":[{}],\n\"vkey\":\"y\"}", "2:1"},
		{"no checkpoint in a document", "{\"events\":[{}],\n\"checkpoint\":1}", "2:1"},
		{"something after the array", "[{}]\n{}", "2:1"},
		{"broken array", "[{},\n {]", "2:3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			events, found := command.SplitFile(tc.src)
			var got []string
			for _, e := range events {
				got = append(got, fmt.Sprintf("%d@%d:%s", e.Number, e.Offset, e.Text))
			}
			for _, d := range found {
				got = append(got, fmt.Sprintf("%d:%d", d.Line, d.Column))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
