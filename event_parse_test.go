package j17_test

import (
	"strings"
	"testing"

	"j17"
)

func TestParseEvent(t *testing.T) {
	id, key := j17.StreamID{Ms: 1706789012345, Seq: 7}, j17.Key{Type: "order", ID: "a:b"}
	for _, data := range []string{
		`{}`, `{"a":"}\"\\","b":[1,{"c":null}]}`, `"text, with \" and ]"`, `17`, `-0.5e3`, `null`, `[]`, `"\\"`,
	} {
		for _, metadata := range []string{`{}`, `{"actor":{"type":"user","id":"x"}}`, `{"timestamps":{"timestamp":3}}`, `{"text":",\"metadata\":{\"timestamp\":4}}"}`} {
			raw, layout := j17.AppendEvent(nil, id, key, "was_placed", []byte(data), []byte(metadata), -12)
			e, err := j17.ParseEvent(raw)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if e.StreamID != id || e.Key != key || e.Type != "was_placed" || e.Timestamp != -12 ||
				string(e.Data) != data || string(e.Metadata) != string(layout.MetadataOf(raw)) {
				t.Errorf("%s: %+v", raw, e)
			}

			// No part of it is an event, nor is it with anything in front or behind.
			for i := range raw {
				if _, err := j17.ParseEvent(raw[:i]); err == nil {
					t.Errorf("%s was read", raw[:i])
				}
			}
			for _, bad := range []string{" " + string(raw), string(raw) + " ", string(raw) + "}"} {
				if _, err := j17.ParseEvent([]byte(bad)); err == nil {
					t.Errorf("%s was read", bad)
				}
			}
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	good := `{"stream_id":"1706789012345-0","key":"order:a","type":"was_placed","data":{"a":1},"metadata":{"timestamp":12}}`
	if _, err := j17.ParseEvent([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for old, changed := range map[string]string{
		`1706789012345-0`:   `1706789012345-00`,
		`order:a`:           `order`,
		`"was_placed"`:      `"was\u005fplaced"`,
		`was_placed`:        ``,
		`{"a":1}`:           `{"a":01}`,
		`"data":{"a":1}`:    `"data":`,
		`{"timestamp":12}`:  `{"timestamp":"12"}`,
		`"timestamp":12`:    `"timestamp":012`,
		`{"timestamp"`:      `{"at":1 "timestamp"`,
		`{"timestamp":12}}`: `{"timestamp":12,"x":1}}`,
		`"type"`:            `"kind"`,
	} {
		bad := strings.Replace(good, old, changed, 1)
		if _, err := j17.ParseEvent([]byte(bad)); err == nil || bad == good {
			t.Errorf("%s was read", bad)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"stream_id":"1706789012345-0","key":"order:a","type":"was_placed","data":{"a":1},"metadata":{"x":"y","timestamp":12}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := j17.ParseEvent(raw)
		if err != nil {
			return
		}

		// What was read is written the same way.
		at := strings.LastIndex(string(e.Metadata), `"timestamp":`)
		rest := strings.TrimSuffix(string(e.Metadata[:at]), ",") + "}"
		if again, _ := j17.AppendEvent(
			nil, e.StreamID, e.Key, e.Type, e.Data, []byte(rest), e.Timestamp,
		); string(again) != string(raw) {
			t.Errorf("%s was read, and is written as %s", raw, again)
		}
	})
}

func BenchmarkParseEvent(b *testing.B) {
	raw, _ := j17.AppendEvent(nil, j17.StreamID{Ms: 1706789012345},
		j17.Key{Type: "order", ID: "a0000000-0000-4000-a000-000000000001"}, "was_placed",
		[]byte(`{"sku":"A-1","text":"`+strings.Repeat("some text ", 10)+`","n":[1,2,3]}`), []byte(`{"actor":{"type":"user","id":"b0000000-0000-4000-a000-000000000002"}}`), 1706789012)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j17.ParseEvent(raw); err != nil {
			b.Fatal(err)
		}
	}
}
