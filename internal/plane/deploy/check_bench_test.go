package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"j17/internal/base/value"
	"j17/internal/lang/spec"
	"j17/internal/plane/deploy"
)

// large returns the spec of an example with its aggregate types as often, each time under other names, as it takes for
// a text of some size.
func large(tb testing.TB, example string, size int) []byte {
	tb.Helper()
	src, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", example, "spec.json"))
	if err != nil {
		tb.Fatal(err)
	}
	root, err := value.Parse(src)
	if err != nil {
		tb.Fatal(err)
	}
	types := root.Get("aggregate_types")
	var members []value.Member
	each := types.Size()
	for i := 0; i < 1 || len(members) < 990 && i*each < size; i++ {
		for _, m := range types.Members() {
			text := m.Value.AppendJSON(nil)
			key := m.Key
			if i > 0 {
				for _, other := range types.Members() {
					text = bytes.ReplaceAll(
						text, []byte(`"aggregate_type":"`+other.Key+`"`),
						[]byte(fmt.Sprintf(`"aggregate_type":"%s_%d"`, other.Key, i)),
					)
				}
				key = fmt.Sprintf("%s_%d", key, i)
			}
			v, err := value.Parse(text)
			if err != nil {
				tb.Fatal(err)
			}
			members = append(members, value.Member{Key: key, Value: v})
		}
	}
	var all []value.Member
	for _, m := range root.Members() {
		if m.Key == "aggregate_types" {
			m.Value = value.ObjectValue(members...)
		}
		all = append(all, m)
	}
	return spec.FormatValue(value.ObjectValue(all...))
}

// BenchmarkCheck looks for all that is wrong with a spec of a megabyte, as POST spec/check does while somebody types.
func BenchmarkCheck(b *testing.B) {
	for _, example := range []string{"orders", "ledger", "booking"} {
		b.Run(example, func(b *testing.B) {
			src := large(b, example, 560_000)
			b.SetBytes(int64(len(src)))
			var s *deploy.Service
			for b.Loop() {
				if checked, err := s.Check(b.Context(), src); err != nil || !checked.Valid {
					b.Fatal(err, checked.Errors)
				}
			}
		})
	}
}
