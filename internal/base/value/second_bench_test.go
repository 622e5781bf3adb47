//go:build !race

package value_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// BenchmarkSecondOpinion reads the order of BenchmarkParse with other readers of JSON: encoding/json into a tree that
// keeps the digits of numbers, and jsontext token by token, without a tree.
func BenchmarkSecondOpinion(b *testing.B) {
	b.Run("encoding_json", func(b *testing.B) {
		b.SetBytes(int64(len(order)))
		b.ReportAllocs()
		for b.Loop() {
			d := json.NewDecoder(bytes.NewReader([]byte(order)))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("jsontext", func(b *testing.B) {
		b.SetBytes(int64(len(order)))
		b.ReportAllocs()
		for b.Loop() {
			d := jsontext.NewDecoder(bytes.NewReader([]byte(order)))
			for {
				if _, err := d.ReadToken(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
