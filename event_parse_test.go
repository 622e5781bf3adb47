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

			known := j17.Event{StreamID: id, Key: key, Type: "was_placed", Timestamp: -12}
			if err := known.SetRaw(raw, layout); err != nil || string(known.Data) != data ||
				string(known.Metadata) != string(e.Metadata) || len(known.Raw) != len(raw) {
				t.Errorf("%s: %+v, %v", raw, known, err)
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

// TestSetRawRefuses gives an event the bytes of other events, and its own ones with other places.
func TestSetRawRefuses(t *testing.T) {
	good := j17.Event{
		StreamID: j17.StreamID{Ms: 1706789012345, Seq: 7}, Key: j17.Key{Type: "order", ID: "a"}, Type: "was_placed",
		Timestamp: 12,
	}
	bytesOf := func(e j17.Event) ([]byte, j17.Layout) {
		return j17.AppendEvent(nil, e.StreamID, e.Key, e.Type, []byte(`{"a":1}`), []byte(`{"b":2}`), e.Timestamp)
	}
	for name, change := range map[string]func(*j17.Event){
		"position": func(e *j17.Event) { e.StreamID.Seq = 8 }, "key": func(e *j17.Event) { e.Key.ID = "b" },
		"type": func(e *j17.Event) { e.Type = "was_sold" }, "timestamp": func(e *j17.Event) { e.Timestamp = 112 },
		"longer timestamp": func(e *j17.Event) { e.Timestamp = 1212 },
	} {
		other := good
		change(&other)
		raw, at := bytesOf(other)
		if err := good.SetRaw(raw, at); err == nil {
			t.Errorf("bytes with another %s are taken", name)
		}
	}
	raw, at := bytesOf(good)
	for _, wrong := range []j17.Layout{
		{},
		{Data: at.Data + 1, Metadata: at.Metadata},
		{Data: at.Data, Metadata: at.Metadata - 1},
		{Data: at.Data, Metadata: len(raw)},
		{Data: at.Data, Metadata: at.Data},
		{Data: -1, Metadata: -1},
	} {
		if err := good.SetRaw(raw, wrong); err == nil {
			t.Errorf("the places %+v are taken", wrong)
		}
	}
	for n := range raw {
		if err := good.SetRaw(raw[:n], at); err == nil {
			t.Errorf("%s is taken", raw[:n])
		}
	}
	if good.Raw != nil {
		t.Error("a refused event has bytes")
	}
	if err := good.SetRaw(raw, at); err != nil {
		t.Error(err)
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
