package j17_test

import (
	"go/ast"
	"testing"
)

// mostMethods is how many methods a type of the program may have.
const mostMethods = 60

// manyMethods are types that have more, with how many. They only become fewer.
var manyMethods = map[string]int{
	"internal/lang/tick.compiler": 95,
}

// TestMethods checks that no type of the program has more methods than a reader can survey.
func TestMethods(t *testing.T) {
	methods := map[string]int{}
	for name, files := range sources(t) {
		for _, file := range files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
					methods[name+"."+receiver(f)]++
				}
			}
		}
	}
	for typ, n := range methods {
		if most := max(mostMethods, manyMethods[typ]); n > most {
			t.Errorf("%s has %d methods, and %d are allowed: move those of one responsibility to a type of their own", typ, n, most)
		}
	}
	for typ, n := range manyMethods {
		if got := methods[typ]; got < n {
			t.Errorf("%s has %d methods by now: write that down here, or take it out where it is not more than %d", typ, got, mostMethods)
		}
	}
}
