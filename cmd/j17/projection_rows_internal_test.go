package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestTablesOfRowsShowNames(t *testing.T) {
	var out bytes.Buffer
	e := &env{out: &out, err: &out, getenv: func(string) string { return "" }}
	row := json.RawMessage(`{"id":"7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d01","handle":"rpr_4k7vx9tz2nqr8w3","public_id":"BIKE-1","data":{"text":"flat"}}`)
	if err := printRowsOf(e, []json.RawMessage{row}, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"handle", "public_id", "rpr_4k7vx9tz2nqr8w3", "BIKE-1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
